//! Byte rings that grow by need, and the pool they come from.
//!
//! A ring holds memory only while it holds bytes: an idle connection has none.
//! The pool is last in, first out, so that a worker with very many connections
//! and few bytes in flight reuses the same warm memory over and over.

/// Smallest ring.
const CLASS_MIN_SHIFT: u32 = 10;
/// Largest ring: 64 MiB.
const CLASS_MAX_SHIFT: u32 = 26;
const CLASSES: usize = (CLASS_MAX_SHIFT - CLASS_MIN_SHIFT + 1) as usize;

/// Largest ring in bytes.
pub(crate) const RING_MAX_BYTES: u32 = 1 << CLASS_MAX_SHIFT;

/// What memory is wanted for: at the limit the less urgent is refused first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Data in order: up to the limit.
    InOrder,
    /// Bytes the user writes: up to 7/8 of it.
    Write,
    /// Data behind a hole: up to 3/4 of it.
    OutOfOrder,
}

/// The buffers of all connections of one engine.
#[derive(Debug)]
pub(crate) struct Pool {
    free: [Vec<Vec<u8>>; CLASSES],
    free_bytes: u64,
    keep_bytes: u64,
    in_use_bytes: u64,
    limit_bytes: u64,
}

impl Pool {
    pub(crate) fn new(limit_bytes: u64, keep_bytes: u64) -> Self {
        Self { free: Default::default(), free_bytes: 0, keep_bytes, in_use_bytes: 0, limit_bytes }
    }

    /// Bytes that rings hold now.
    pub(crate) fn in_use_bytes(&self) -> u64 {
        self.in_use_bytes
    }

    /// Whether even the smallest ring would be refused to a writer.
    pub(crate) fn tight(&self) -> bool {
        self.in_use_bytes + (1 << CLASS_MIN_SHIFT) > self.limit_bytes / 8 * 7
    }

    /// Whether half of the limit is used: buffers stop growing beyond their first size.
    pub(crate) fn pressure(&self) -> bool {
        self.in_use_bytes >= self.limit_bytes / 2
    }

    fn take(&mut self, bytes: usize, purpose: Use) -> Option<Vec<u8>> {
        let size = bytes.next_power_of_two().max(1 << CLASS_MIN_SHIFT);
        let class = (size.trailing_zeros() - CLASS_MIN_SHIFT) as usize;
        if class >= CLASSES {
            return None;
        }
        let bound = match purpose {
            Use::InOrder => self.limit_bytes,
            Use::Write => self.limit_bytes / 8 * 7,
            Use::OutOfOrder => self.limit_bytes / 4 * 3,
        };
        if self.in_use_bytes + size as u64 > bound {
            return None;
        }
        self.in_use_bytes += size as u64;
        match self.free[class].pop() {
            Some(buf) => {
                self.free_bytes -= size as u64;
                Some(buf)
            }
            None => Some(vec![0; size]),
        }
    }

    fn put(&mut self, buf: Vec<u8>) {
        let size = buf.len();
        if size == 0 {
            return;
        }
        self.in_use_bytes -= size as u64;
        if self.free_bytes + size as u64 > self.keep_bytes {
            return;
        }
        self.free_bytes += size as u64;
        self.free[(size.trailing_zeros() - CLASS_MIN_SHIFT) as usize].push(buf);
    }
}

/// A ring of bytes. Offsets count from the oldest byte.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    data: Vec<u8>,
    head: u32,
    len: u32,
}

impl Ring {
    /// Bytes held in order.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads the oldest byte, for the cache.
    #[inline]
    pub(crate) fn touch(&self) -> u64 {
        self.data.get(self.head as usize).map_or(0, |&b| u64::from(b))
    }

    /// Bytes of memory held.
    pub(crate) fn capacity(&self) -> u32 {
        self.data.len() as u32
    }

    /// Makes room for `need` bytes from the oldest byte on. `live` is how many
    /// bytes from the oldest on must survive the move.
    fn reserve(&mut self, pool: &mut Pool, need: u32, live: u32, purpose: Use) -> bool {
        if need <= self.data.len() as u32 {
            return true;
        }
        if need > RING_MAX_BYTES {
            return false;
        }
        let Some(mut bigger) = pool.take(need as usize, purpose) else { return false };
        let (a, b) = self.slices(0, live.min(self.data.len() as u32));
        bigger[..a.len()].copy_from_slice(a);
        bigger[a.len()..a.len() + b.len()].copy_from_slice(b);
        pool.put(std::mem::replace(&mut self.data, bigger));
        self.head = 0;
        true
    }

    /// The bytes `[offset, offset + len)` as two slices.
    #[inline]
    fn slices(&self, offset: u32, len: u32) -> (&[u8], &[u8]) {
        if len == 0 {
            return (&[], &[]);
        }
        let mask = self.data.len() - 1;
        let start = (self.head as usize + offset as usize) & mask;
        let first = (self.data.len() - start).min(len as usize);
        (&self.data[start..start + first], &self.data[..len as usize - first])
    }

    #[inline]
    fn put_at(&mut self, offset: u32, bytes: &[u8]) {
        let mask = self.data.len() - 1;
        let start = (self.head as usize + offset as usize) & mask;
        let first = (self.data.len() - start).min(bytes.len());
        self.data[start..start + first].copy_from_slice(&bytes[..first]);
        self.data[..bytes.len() - first].copy_from_slice(&bytes[first..]);
    }

    /// Appends `bytes`, all or nothing.
    pub(crate) fn push(&mut self, pool: &mut Pool, bytes: &[u8], purpose: Use) -> bool {
        if bytes.is_empty() {
            return true;
        }
        if !self.reserve(pool, self.len + bytes.len() as u32, self.len, purpose) {
            return false;
        }
        self.put_at(self.len, bytes);
        self.len += bytes.len() as u32;
        true
    }

    /// Stores `bytes` at `offset`, beyond the bytes in order; `live` is the end
    /// of what has been stored that way before.
    pub(crate) fn store(&mut self, pool: &mut Pool, offset: u32, bytes: &[u8], live: u32) -> bool {
        debug_assert!(offset >= self.len);
        let Some(need) = offset.checked_add(bytes.len() as u32) else { return false };
        if !self.reserve(pool, need, live.max(self.len), Use::OutOfOrder) {
            return false;
        }
        self.put_at(offset, bytes);
        true
    }

    /// Takes `n` stored bytes behind the bytes in order as in order.
    pub(crate) fn commit(&mut self, n: u32) {
        self.len += n;
        debug_assert!(self.len <= self.data.len() as u32);
    }

    /// Copies from `offset` into `out`; returns how many bytes there were.
    #[inline]
    pub(crate) fn copy_out(&self, offset: u32, out: &mut [u8]) -> usize {
        let n = (self.len.saturating_sub(offset) as usize).min(out.len());
        let (a, b) = self.slices(offset, n as u32);
        out[..a.len()].copy_from_slice(a);
        out[a.len()..n].copy_from_slice(b);
        n
    }

    /// Copies stored bytes `[offset, offset + out.len())`, in order or not.
    pub(crate) fn copy_stored(&self, offset: u32, out: &mut [u8]) {
        let (a, b) = self.slices(offset, out.len() as u32);
        out[..a.len()].copy_from_slice(a);
        out[a.len()..].copy_from_slice(b);
    }

    /// Drops `n` of the oldest bytes. With `release`, memory goes back to the
    /// pool when nothing is left.
    #[inline]
    pub(crate) fn consume(&mut self, pool: &mut Pool, n: u32, release: bool) {
        debug_assert!(n <= self.len);
        self.len -= n;
        if self.len == 0 && release {
            pool.put(std::mem::take(&mut self.data));
            self.head = 0;
        } else if !self.data.is_empty() {
            self.head = ((self.head as usize + n as usize) & (self.data.len() - 1)) as u32;
        }
    }

    /// Gives the memory back, bytes and all.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        pool.put(std::mem::take(&mut self.data));
        self.head = 0;
        self.len = 0;
    }
}
