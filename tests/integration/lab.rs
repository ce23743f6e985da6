//! Where cases with instances of their own make them.

use ff_harness::{Binaries, Device, Failure, Instance, Spec};

/// Gives out instances with names that are free.
pub struct Lab {
    /// The device of this pass.
    pub device: Device,
    /// Where the programs are.
    pub binaries: Binaries,
    next: u8,
}

impl Lab {
    /// A lab for one device.
    pub fn new(device: Device, binaries: Binaries) -> Self {
        Self { device, binaries, next: 0 }
    }

    /// A plain spec on this lab's device.
    pub fn spec(&self) -> Spec {
        Spec::new(self.device)
    }

    /// Namespaces and files, nothing started.
    ///
    /// # Errors
    /// As [`Instance::prepare`].
    pub fn prepare(&mut self, spec: Spec) -> Result<Instance, Failure> {
        let index = self.next;
        self.next = self.next.wrapping_add(1) % 26;
        Instance::prepare(index, spec, &self.binaries)
    }

    /// A running instance that answers.
    ///
    /// # Errors
    /// As [`Instance::start`], with the logs' last lines.
    pub fn start(&mut self, spec: Spec) -> Result<Instance, Failure> {
        let mut instance = self.prepare(spec)?;
        instance.start().map_err(|failure| Failure(format!("{failure}\n{}", instance.log_tails())))?;
        Ok(instance)
    }
}
