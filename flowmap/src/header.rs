//! The first line of every shared region: what it is, whether it is finished.
//!
//! The positions of magic, version and the "initialised" word never change, so
//! that any version can recognise any other and say so.
//!
//! Creating: [`begin`], then everything else in the region, then
//! [`Unfinished::finish`], whose store (release) is the last of all. Opening:
//! [`open`] loads that word first (acquire), so whoever sees it sees the rest.

use crate::memory::{Line, Region};
use crate::owner::Owner;
use crate::sync::Ordering;

const MAGIC: usize = 0;
const VERSION: usize = 1;
const TOTAL_BYTES: usize = 2;
const FINGERPRINT: usize = 3;
const CREATOR: usize = 4;
const INITIALISED: usize = 5;

/// Value of the "initialised" word in a finished region ("finished").
const FINISHED: u64 = u64::from_be_bytes(*b"finished");

/// Lines that the header takes.
pub const HEADER_LINES: usize = 1;

/// What kind of region it is, in which layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Kind of region.
    pub magic: u64,
    /// Layout version: grows with every change of the layout.
    pub version: u32,
    /// Digest of the layout's positions and sizes, from [`fingerprint`]: finds
    /// the change for which somebody forgot the new version.
    pub fingerprint: u64,
}

/// Why a region cannot be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CreateError {
    /// It cannot even hold its header.
    #[error("the shared region has {len_bytes} bytes, too few for its header")]
    TooShort {
        /// Bytes there are.
        len_bytes: usize,
    },
}

/// Why a region cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// There is nothing to open.
    #[error("there is no shared region: is the primary running?")]
    Absent,
    /// Its creator is still at work, or died before it was done.
    #[error("the shared region is not finished (created by {}): try again, or start the primary anew", creator_text(.creator))]
    NotFinished {
        /// Who began it, if it got that far.
        creator: Option<Owner>,
    },
    /// Not one of ours.
    #[error("the shared region begins with {found:#018x}, which is not the mark of this program")]
    WrongMagic {
        /// The mark that was found.
        found: u64,
    },
    /// Laid out by another version of this program.
    #[error(
        "the shared region has layout version {found}, this program knows {expected}: install the version that the primary runs, or stop and start the instance"
    )]
    WrongVersion {
        /// Version in the region.
        found: u32,
        /// Version of this program.
        expected: u32,
    },
    /// Not as long as its header says.
    #[error("the shared region has {found_bytes} bytes, its header says {expected_bytes}: it was cut short")]
    WrongSize {
        /// Bytes there are.
        found_bytes: u64,
        /// Bytes that its header tells.
        expected_bytes: u64,
    },
    /// The same version, yet another layout: a fault in the build.
    #[error(
        "the shared region was laid out by another build of the same version ({found:#018x}, not {expected:#018x}): stop and start the instance"
    )]
    WrongFingerprint {
        /// Digest in the region.
        found: u64,
        /// Digest of this program.
        expected: u64,
    },
}

fn creator_text(creator: &Option<Owner>) -> String {
    creator.map_or_else(|| "nobody yet".to_owned(), |owner| owner.to_string())
}

/// A region that is being filled. Dropping it leaves it unfinished.
#[derive(Debug)]
#[must_use = "the region stays closed to everybody until it is finished"]
pub struct Unfinished<'m> {
    line: &'m Line,
}

/// Starts a region over whatever the memory held before. Nobody can open it
/// until it is finished.
pub fn begin<'m>(
    region: Region<'m>,
    identity: Identity,
    creator: Owner,
) -> Result<Unfinished<'m>, CreateError> {
    let line = region.lines().first().ok_or(CreateError::TooShort { len_bytes: region.len_bytes() })?;
    line.word(INITIALISED).store(0, Ordering::SeqCst);
    line.word(CREATOR).store(creator.word(), Ordering::Relaxed);
    line.word(MAGIC).store(identity.magic, Ordering::Relaxed);
    line.word(VERSION).store(u64::from(identity.version), Ordering::Relaxed);
    line.word(TOTAL_BYTES).store(region.len_bytes() as u64, Ordering::Relaxed);
    line.word(FINGERPRINT).store(identity.fingerprint, Ordering::Relaxed);
    Ok(Unfinished { line })
}

impl Unfinished<'_> {
    /// Opens the region to everybody.
    pub fn finish(self) {
        self.line.word(INITIALISED).store(FINISHED, Ordering::Release);
    }
}

/// Checks that `region` is a finished region of `identity`; gives its creator.
pub fn open(region: Region<'_>, identity: Identity) -> Result<Option<Owner>, OpenError> {
    let line = region.lines().first().ok_or(OpenError::Absent)?;
    let initialised = line.word(INITIALISED).load(Ordering::Acquire);
    let magic = line.word(MAGIC).load(Ordering::Relaxed);
    let creator = Owner::from_word(line.word(CREATOR).load(Ordering::Relaxed));
    if magic != identity.magic && magic != 0 {
        return Err(OpenError::WrongMagic { found: magic });
    }
    if initialised != FINISHED {
        return Err(OpenError::NotFinished { creator });
    }
    if magic == 0 {
        return Err(OpenError::WrongMagic { found: magic });
    }
    let found = line.word(VERSION).load(Ordering::Relaxed) as u32;
    if found != identity.version {
        return Err(OpenError::WrongVersion { found, expected: identity.version });
    }
    let expected_bytes = line.word(TOTAL_BYTES).load(Ordering::Relaxed);
    let found_bytes = region.len_bytes() as u64;
    if found_bytes != expected_bytes {
        return Err(OpenError::WrongSize { found_bytes, expected_bytes });
    }
    let found = line.word(FINGERPRINT).load(Ordering::Relaxed);
    if found != identity.fingerprint {
        return Err(OpenError::WrongFingerprint { found, expected: identity.fingerprint });
    }
    Ok(creator)
}

/// Digest (FNV-1a, 64 bits) of the numbers that make up a layout.
pub const fn fingerprint(numbers: &[u64]) -> u64 {
    let mut digest = 0xcbf2_9ce4_8422_2325u64;
    let mut at = 0;
    while at < numbers.len() {
        let bytes = numbers[at].to_le_bytes();
        let mut byte = 0;
        while byte < bytes.len() {
            digest = (digest ^ bytes[byte] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            byte += 1;
        }
        at += 1;
    }
    digest
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
