//! Generations and the handover: the words of the generation directory and the T0-T5 machine. No I/O, no clock.
