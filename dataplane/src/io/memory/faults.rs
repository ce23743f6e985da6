//! What a bad wire does to frames, by seed.

/// Ethernet header.
const HEADER_BYTES: usize = 14;

/// Faults of one direction of a wire. Rates are in parts per million of the frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Frames that vanish.
    pub loss_ppm: u32,
    /// Frames that arrive twice.
    pub duplicate_ppm: u32,
    /// Frames with one bit turned over, which every checksum finds. The Ethernet header stays as it is, and
    /// frames that are not IP are lost instead: nothing but the wire's own check sequence guards those.
    pub corrupt_ppm: u32,
    /// Frames that arrive later than their successors, by up to `reorder_us`.
    pub reorder_ppm: u32,
    /// Largest extra delay of a reordered frame, microseconds.
    pub reorder_us: u64,
    /// Time on the wire, microseconds.
    pub delay_us: u64,
    /// Random extra time of every frame, up to this, microseconds; order is kept.
    pub jitter_us: u64,
}

/// What happens to one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fate {
    /// Arrivals after sending, microseconds; none when it is lost.
    pub(super) delays_us: [Option<u64>; 2],
    /// The bit to turn over, as a bit offset into the frame.
    pub(super) flip: Option<usize>,
    /// May arrive before frames that were sent earlier.
    pub(super) out_of_order: bool,
}

impl Faults {
    /// No faults and no delay.
    pub const NONE: Self = Self {
        loss_ppm: 0,
        duplicate_ppm: 0,
        corrupt_ppm: 0,
        reorder_ppm: 0,
        reorder_us: 0,
        delay_us: 0,
        jitter_us: 0,
    };

    pub(super) fn fate(&self, rng: &mut Rng, frame: &[u8]) -> Fate {
        let mut fate = Fate { delays_us: [None; 2], flip: None, out_of_order: false };
        if rng.chance_ppm(self.loss_ppm) {
            return fate;
        }
        let copies = if rng.chance_ppm(self.duplicate_ppm) { 2 } else { 1 };
        for delay in fate.delays_us.iter_mut().take(copies) {
            let mut us = self.delay_us + rng.up_to(self.jitter_us);
            if rng.chance_ppm(self.reorder_ppm) {
                us += 1 + rng.up_to(self.reorder_us);
                fate.out_of_order = true;
            }
            *delay = Some(us);
        }
        if rng.chance_ppm(self.corrupt_ppm) {
            match frame.get(12..14) {
                Some([0x08, 0x00] | [0x86, 0xdd]) if frame.len() > HEADER_BYTES => {
                    let bits = (frame.len() - HEADER_BYTES) as u64 * 8;
                    fate.flip = Some(HEADER_BYTES * 8 + rng.up_to(bits - 1) as usize);
                }
                _ => fate.delays_us = [None; 2],
            }
        }
        fate
    }
}

/// A small random number generator (SplitMix64, after Steele, Lea and Flood), so that a run is a function of
/// its seed and of nothing else. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to `max`, both included.
    pub fn up_to(&mut self, max: u64) -> u64 {
        match max.checked_add(1) {
            None => self.next_u64(),
            Some(n) => ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64,
        }
    }

    /// True in `ppm` of a million cases.
    pub fn chance_ppm(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.up_to(999_999) < u64::from(ppm)
    }

    /// Fills `bytes` with random bits.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}
