//! Frames as a pcap file, for a person with a packet analyser.

use std::io::{Result, Write};

/// Longest frame that is written whole, bytes; the header says so.
const SNAPLEN: u32 = 65_535;
/// LINKTYPE_ETHERNET.
const LINKTYPE_ETHERNET: u32 = 1;

/// Writes the classic pcap format with microsecond stamps.
pub struct PcapWriter<W: Write> {
    out: W,
}

impl<W: Write> PcapWriter<W> {
    /// Writes the file header.
    ///
    /// # Errors
    /// What the writer says.
    pub fn new(mut out: W) -> Result<Self> {
        let mut header = [0; 24];
        header[..4].copy_from_slice(&0xa1b2_c3d4u32.to_le_bytes());
        header[4..6].copy_from_slice(&2u16.to_le_bytes());
        header[6..8].copy_from_slice(&4u16.to_le_bytes());
        header[16..20].copy_from_slice(&SNAPLEN.to_le_bytes());
        header[20..].copy_from_slice(&LINKTYPE_ETHERNET.to_le_bytes());
        out.write_all(&header)?;
        Ok(Self { out })
    }

    /// Writes one frame with its time in microseconds.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write(&mut self, time_us: u64, frame: &[u8]) -> Result<()> {
        let kept = &frame[..frame.len().min(SNAPLEN as usize)];
        let mut header = [0; 16];
        header[..4].copy_from_slice(&((time_us / 1_000_000) as u32).to_le_bytes());
        header[4..8].copy_from_slice(&((time_us % 1_000_000) as u32).to_le_bytes());
        header[8..12].copy_from_slice(&(kept.len() as u32).to_le_bytes());
        header[12..].copy_from_slice(&(frame.len() as u32).to_le_bytes());
        self.out.write_all(&header)?;
        self.out.write_all(kept)
    }
}
