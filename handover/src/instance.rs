//! The one shared region of an instance: where everything lies in it.
//!
//! ```text
//! region header │ directory │ neighbour table │ TCP, UDP table of slot 0 worker 0 │ … of slot 0 worker 1 │ …
//! ```
//!
//! The caller maps the memory (a file in hugetlbfs) and hands it in as a
//! [`Region`]; nothing here does I/O. The layout follows from
//! [`InstanceParams`] alone, which the directory repeats, so whoever opens the
//! region needs to know nothing but where the file is.

use ff_flowmap::header::{self, CreateError, Identity, OpenError};
use ff_flowmap::{
    CAPACITY_MAX, HashKey, LINE_BYTES, NEIGHBOUR_LAYOUT, NEIGHBOURS_MAX, NeighbourWriter, Neighbours, Owner,
    Region, RegionError, TABLE_LAYOUT, TableOpenError, TcpTableReader, TcpTableWriter, UdpTableReader,
    UdpTableWriter, format_neighbours, format_tcp_table, format_udp_table, neighbours_bytes, tcp_table_bytes,
    udp_table_bytes,
};

use crate::directory::{self, Directory, Secrets};

/// Grows with every change of any layout in the region.
pub const LAYOUT_VERSION: u32 = 2;

/// Workers of a generation at most.
pub const WORKERS_MAX: u32 = 64;

/// Slots at least: one active and one draining or being started.
pub const SLOTS_MIN: u32 = 2;

/// Slots at most.
pub const SLOTS_MAX: u32 = 8;

const MAGIC: u64 = u64::from_be_bytes(*b"ffstack\0");

/// What an instance is made for. None of it changes while it lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstanceParams {
    /// Workers of a generation, and receive queues: 1 to [`WORKERS_MAX`].
    pub workers: u32,
    /// Slots for generations: [`SLOTS_MIN`] to [`SLOTS_MAX`].
    pub slots: u32,
    /// TCP flows of a worker: 1 to [`CAPACITY_MAX`].
    pub tcp_capacity: u32,
    /// UDP flows of a worker: 1 to [`CAPACITY_MAX`].
    pub udp_capacity: u32,
    /// Neighbours of the host: 1 to [`NEIGHBOURS_MAX`].
    pub neighbour_capacity: u32,
}

/// What a new region is told, besides its [`InstanceParams`].
#[derive(Clone, Debug)]
pub struct InstanceSeed<'a> {
    /// The primary that creates it.
    pub primary_pid: u32,
    /// Now, in microseconds of CLOCK_MONOTONIC.
    pub started_us: u64,
    /// The instance's name, at most 64 bytes; longer ones are cut.
    pub name: &'a str,
    /// Digest of the device-side keys of the configuration.
    pub device_digest: u64,
    /// Random keys.
    pub secrets: Secrets,
}

/// Why an instance's region cannot be created or opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InstanceError {
    /// A number is out of range.
    #[error("{name} is {value}: it must be between {min} and {max}")]
    OutOfRange {
        /// Which.
        name: &'static str,
        /// What was given.
        value: u32,
        /// The least allowed.
        min: u32,
        /// The most allowed.
        max: u32,
    },
    /// The memory is too small.
    #[error("the shared region needs {needed_bytes} bytes and has {len_bytes}")]
    TooSmall {
        /// Bytes needed.
        needed_bytes: usize,
        /// Bytes there are.
        len_bytes: usize,
    },
    /// There is no such slot or worker.
    #[error("there is no worker {worker} in slot {slot}")]
    NoWorker {
        /// The slot asked for.
        slot: usize,
        /// The worker asked for.
        worker: usize,
    },
    /// The region cannot be started.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The region cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A table in it cannot be opened.
    #[error(transparent)]
    Table(#[from] TableOpenError),
    /// Something lies outside of it.
    #[error(transparent)]
    Region(#[from] RegionError),
}

/// Where everything lies. All numbers are in lines of 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstanceLayout {
    params: InstanceParams,
    neighbours: usize,
    tables: usize,
    tcp_lines: usize,
    udp_lines: usize,
}

const DIRECTORY: usize = header::HEADER_LINES;

impl InstanceLayout {
    /// The layout for `params`.
    pub fn new(params: InstanceParams) -> Result<Self, InstanceError> {
        let InstanceParams { workers, slots, tcp_capacity, udp_capacity, neighbour_capacity } = params;
        for (name, value, min, max) in [
            ("the number of workers", workers, 1, WORKERS_MAX),
            ("reload_generations", slots, SLOTS_MIN, SLOTS_MAX),
            ("the number of TCP flows", tcp_capacity, 1, CAPACITY_MAX),
            ("the number of UDP flows", udp_capacity, 1, CAPACITY_MAX),
            ("the number of neighbours", neighbour_capacity, 1, NEIGHBOURS_MAX),
        ] {
            if !(min..=max).contains(&value) {
                return Err(InstanceError::OutOfRange { name, value, min, max });
            }
        }
        let neighbours = DIRECTORY + Directory::lines(workers as usize, slots as usize);
        Ok(Self {
            params,
            neighbours,
            tables: neighbours + neighbours_bytes(neighbour_capacity) / LINE_BYTES,
            tcp_lines: tcp_table_bytes(tcp_capacity) / LINE_BYTES,
            udp_lines: udp_table_bytes(udp_capacity) / LINE_BYTES,
        })
    }

    /// What it was made for.
    pub fn params(&self) -> InstanceParams {
        self.params
    }

    /// Bytes of shared memory that it takes. More may be mapped (hugepages).
    pub fn total_bytes(&self) -> usize {
        let tables = self.params.workers as usize * self.params.slots as usize;
        (self.tables + tables * (self.tcp_lines + self.udp_lines)) * LINE_BYTES
    }

    fn tcp<'m>(&self, region: Region<'m>, slot: usize, worker: usize) -> Result<Region<'m>, InstanceError> {
        Ok(region.part(self.first_table(slot, worker)?, self.tcp_lines)?)
    }

    fn udp<'m>(&self, region: Region<'m>, slot: usize, worker: usize) -> Result<Region<'m>, InstanceError> {
        Ok(region.part(self.first_table(slot, worker)? + self.tcp_lines, self.udp_lines)?)
    }

    fn neighbours<'m>(&self, region: Region<'m>) -> Result<Region<'m>, RegionError> {
        region.part(self.neighbours, self.tables - self.neighbours)
    }

    fn first_table(&self, slot: usize, worker: usize) -> Result<usize, InstanceError> {
        let (slots, workers) = (self.params.slots as usize, self.params.workers as usize);
        if slot >= slots || worker >= workers {
            return Err(InstanceError::NoWorker { slot, worker });
        }
        Ok(self.tables + (slot * workers + worker) * (self.tcp_lines + self.udp_lines))
    }
}

/// Version and digest of the layout of this build.
pub(crate) fn identity() -> Identity {
    let mut digest = DIRECTORY as u64;
    for part in [
        &directory::INSTANCE_LAYOUT[..],
        &directory::QUEUE_LAYOUT[..],
        &directory::GENERATION_LAYOUT[..],
        &directory::WORKER_LAYOUT[..],
        &NEIGHBOUR_LAYOUT[..],
        &TABLE_LAYOUT[..],
    ] {
        digest = header::fingerprint(&[digest, header::fingerprint(part)]);
    }
    Identity { magic: MAGIC, version: LAYOUT_VERSION, fingerprint: digest }
}

/// An open region of an instance. Copies name the same memory.
#[derive(Clone, Copy, Debug)]
pub struct Instance<'m> {
    region: Region<'m>,
    layout: InstanceLayout,
    directory: Directory<'m>,
    secrets: Secrets,
}

impl<'m> Instance<'m> {
    /// Makes a new instance over whatever `region` held, and opens it to
    /// everybody as the last thing it does. A creator that is killed before
    /// leaves an unfinished region, which nobody opens.
    pub fn create(
        region: Region<'m>,
        params: InstanceParams,
        seed: &InstanceSeed<'_>,
    ) -> Result<Self, InstanceError> {
        let layout = InstanceLayout::new(params)?;
        let needed_bytes = layout.total_bytes();
        if region.len_bytes() < needed_bytes {
            return Err(InstanceError::TooSmall { needed_bytes, len_bytes: region.len_bytes() });
        }
        let creator = Owner { epoch: 0, pid: seed.primary_pid };
        let unfinished = header::begin(region, identity(), creator)?;
        let (workers, slots) = (params.workers as usize, params.slots as usize);
        let directory_region = region.part(DIRECTORY, Directory::lines(workers, slots))?;
        for line in directory_region.lines() {
            for position in 0..8 {
                line.word(position).store(0, ff_flowmap::sync::Ordering::Relaxed);
            }
        }
        let directory = Directory::over(directory_region, workers, slots)?;
        directory.instance().write_identity(&directory::Identity {
            primary_pid: seed.primary_pid,
            started_us: seed.started_us,
            workers: params.workers,
            slots: params.slots,
            device_digest: seed.device_digest,
            tcp_capacity: params.tcp_capacity,
            udp_capacity: params.udp_capacity,
            neighbour_capacity: params.neighbour_capacity,
            name: seed.name,
            secrets: seed.secrets,
        });
        let hash_key: HashKey = seed.secrets.hash;
        format_neighbours(layout.neighbours(region)?, params.neighbour_capacity, hash_key)?;
        for slot in 0..slots {
            for worker in 0..workers {
                format_tcp_table(layout.tcp(region, slot, worker)?, params.tcp_capacity, hash_key)?;
                format_udp_table(layout.udp(region, slot, worker)?, params.udp_capacity, hash_key)?;
            }
        }
        unfinished.finish();
        Ok(Self { region, layout, directory, secrets: seed.secrets })
    }

    /// Opens a finished region.
    pub fn open(region: Region<'m>) -> Result<Self, InstanceError> {
        header::open(region, identity())?;
        let words = Directory::over(region.part(DIRECTORY, directory::INSTANCE_LINES)?, 0, 0)?.instance();
        let [tcp_capacity, udp_capacity, neighbour_capacity] = words.capacities();
        let params = InstanceParams {
            workers: words.worker_count(),
            slots: words.slot_count(),
            tcp_capacity,
            udp_capacity,
            neighbour_capacity,
        };
        let layout = InstanceLayout::new(params)?;
        let needed_bytes = layout.total_bytes();
        if region.len_bytes() < needed_bytes {
            return Err(InstanceError::TooSmall { needed_bytes, len_bytes: region.len_bytes() });
        }
        let (workers, slots) = (params.workers as usize, params.slots as usize);
        let lines = region.part(DIRECTORY, Directory::lines(workers, slots))?;
        let directory = Directory::over(lines, workers, slots)?;
        Ok(Self { region, layout, directory, secrets: words.secrets() })
    }

    /// Where everything lies.
    pub fn layout(&self) -> &InstanceLayout {
        &self.layout
    }

    /// What it was made for.
    pub fn params(&self) -> InstanceParams {
        self.layout.params
    }

    /// The words that everybody shares.
    pub fn directory(&self) -> Directory<'m> {
        self.directory
    }

    /// The keys that all generations share.
    pub fn secrets(&self) -> Secrets {
        self.secrets
    }

    /// The TCP flow table of a worker, for its process: emptied, then its own.
    pub fn tcp_writer(
        &self,
        slot: usize,
        worker: usize,
        owner: Owner,
    ) -> Result<TcpTableWriter<'m>, InstanceError> {
        Ok(TcpTableWriter::open(self.layout.tcp(self.region, slot, worker)?, owner)?)
    }

    /// The TCP flow table of a worker, for reading.
    pub fn tcp_reader(&self, slot: usize, worker: usize) -> Result<TcpTableReader<'m>, InstanceError> {
        Ok(TcpTableReader::open(self.layout.tcp(self.region, slot, worker)?)?)
    }

    /// The UDP publish table of a worker, for its process: emptied, then its
    /// own. A flow idle for `idle_us` may make room.
    pub fn udp_writer(
        &self,
        slot: usize,
        worker: usize,
        owner: Owner,
        idle_us: u64,
    ) -> Result<UdpTableWriter<'m>, InstanceError> {
        Ok(UdpTableWriter::open(self.layout.udp(self.region, slot, worker)?, owner, idle_us)?)
    }

    /// The UDP publish table of a worker, for reading.
    pub fn udp_reader(&self, slot: usize, worker: usize) -> Result<UdpTableReader<'m>, InstanceError> {
        Ok(UdpTableReader::open(self.layout.udp(self.region, slot, worker)?)?)
    }

    /// The host's neighbour table, for reading.
    pub fn neighbours(&self) -> Result<Neighbours<'m>, InstanceError> {
        Ok(Neighbours::open(self.layout.neighbours(self.region)?)?)
    }

    /// The host's neighbour table, for a process that learns.
    pub fn neighbour_writer(&self, owner: Owner) -> Result<NeighbourWriter<'m>, InstanceError> {
        Ok(NeighbourWriter::open(self.layout.neighbours(self.region)?, owner)?)
    }

    /// Takes back what the dead process `dead` owned: the tables of a worker,
    /// and locks in the neighbour table. True if it owned any table.
    pub fn reclaim_tables(&self, slot: usize, worker: usize, dead: Owner) -> Result<bool, InstanceError> {
        let tcp = self.tcp_reader(slot, worker)?.reclaim(dead);
        let udp = self.udp_reader(slot, worker)?.reclaim(dead);
        self.neighbours()?.reclaim(dead);
        Ok(tcp | udp)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
