//! The one safe layer over DPDK: EAL, port, mempool, mbuf, ring, memzone.
