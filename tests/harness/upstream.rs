//! The services behind nginx: they listen on the server namespace's loopback, which stays in the kernel.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::{Context, Failure, Netns, Site, proc};

/// A running upstream; ended when dropped.
#[derive(Debug)]
pub struct Upstream {
    child: Child,
}

impl Upstream {
    /// Starts HTTP with WebSocket echo, and a plain echo service.
    ///
    /// # Errors
    /// Python is missing, or a port does not open within 10 s.
    pub fn start(server: &Netns, site: &Site) -> Result<Self, Failure> {
        let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("harness/upstream.py");
        let log = File::create(site.dir.join("upstream.log"))?;
        let ready = site.dir.join("upstream.ready");
        let _ = std::fs::remove_file(&ready);
        let child = server
            .command("/usr/bin/python3")
            .arg(program)
            .arg(site.upstream_port.to_string())
            .arg(site.echo_port.to_string())
            .arg(&ready)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .doing("starting the upstream")?;
        let upstream = Self { child };
        if proc::until(Duration::from_secs(10), || ready.exists()) {
            return Ok(upstream);
        }
        let text = std::fs::read_to_string(site.dir.join("upstream.log")).unwrap_or_default();
        Err(Failure(format!("the upstream did not start: {text}")))
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
