//! One server with its namespaces: our stack on TAP or af_packet, or kernel nginx as the reference run.
//!
//! ```text
//! server namespace            client namespace             far namespace
//! ffctl, ff-primary, nginx ── device: .2 ── .1, router ──── .2 behind the gateway
//! ```

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{Context, Failure, Names, Netns, Output, Site, Upstream, ensure, http, proc, run};
use crate::{run_directory, run_in};

/// The server's IPv4 address.
pub const SERVER4: Ipv4Addr = Ipv4Addr::new(198, 18, 7, 2);
/// The server's IPv6 address.
pub const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 7, 0, 0, 0, 2);
const STACK_MAC: &str = "02:ff:00:00:07:02";
const CLIENT_MAC: &str = "02:ff:00:00:07:01";

/// What carries the server's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// Our stack on a TAP device.
    Tap,
    /// Our stack on packet sockets over a veth pair.
    AfPacket,
    /// Our stack on the in-memory wire; `ff-loadgen` is the only client that can reach it.
    Wire,
    /// Kernel nginx over a veth pair: what the cases must find true of the kernel as well.
    Kernel,
}

impl Device {
    /// Its name on the command line and in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tap => "tap",
            Self::AfPacket => "af_packet",
            Self::Wire => "wire",
            Self::Kernel => "kernel",
        }
    }

    /// Whether our stack serves.
    pub fn ours(self) -> bool {
        self != Self::Kernel
    }
}

/// Where the programs under test are.
#[derive(Debug, Clone)]
pub struct Binaries {
    /// Directory of `ffctl`, `ff-primary` and `libff_nginx.so`.
    pub dir: PathBuf,
}

impl Binaries {
    /// The directory that the harness itself was built into.
    ///
    /// # Errors
    /// `/proc/self/exe` cannot be read.
    pub fn beside_harness() -> Result<Self, Failure> {
        let exe = std::env::current_exe()?;
        Ok(Self { dir: exe.parent().doing("the harness has no directory")?.to_owned() })
    }

    /// `ffctl`.
    pub fn ffctl(&self) -> PathBuf {
        self.dir.join("ffctl")
    }

    /// `ff-loadgen`.
    pub fn loadgen(&self) -> PathBuf {
        self.dir.join("ff-loadgen")
    }
}

/// What an instance is to be.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The device.
    pub device: Device,
    /// `worker_processes`.
    pub workers: usize,
    /// Further lines at nginx's top level.
    pub main: String,
    /// Further lines of nginx's `http` block.
    pub http: String,
    /// Further parameters of nginx's `listen`.
    pub listen: Option<String>,
    /// Further sections of f-stack.conf.
    pub stack: String,
    /// Lines of `[port0]` instead of the usual `device=`.
    pub port: Option<String>,
}

impl Spec {
    /// Two workers on the device, nothing special.
    pub fn new(device: Device) -> Self {
        Self {
            device,
            workers: 2,
            main: String::new(),
            http: String::new(),
            listen: None,
            stack: String::new(),
            port: None,
        }
    }
}

/// Namespaces, files and, once started, a server. Everything is removed when it is dropped.
#[derive(Debug)]
pub struct Instance {
    /// What it is.
    pub spec: Spec,
    /// Names of its parts.
    pub names: Names,
    /// The site that nginx serves.
    pub site: Site,
    /// The namespace of the server.
    pub server: Netns,
    /// The namespace of the clients; routes between the device and `far`.
    pub client: Netns,
    /// The namespace behind the gateway.
    pub far: Netns,
    binaries: Binaries,
    upstream: Option<Upstream>,
}

impl Instance {
    /// Makes namespaces, files and configuration; starts nothing.
    ///
    /// # Errors
    /// Not root, names taken, a tool is missing.
    pub fn prepare(index: u8, spec: Spec, binaries: &Binaries) -> Result<Self, Failure> {
        let names = Names::new(index);
        let server = Netns::create(&names.server)?;
        let client = Netns::create(&names.client)?;
        let far = Netns::create(&names.far)?;
        let mut site = Site::new(&run_directory().join(&names.instance));
        site.workers = spec.workers;
        site.main.clone_from(&spec.main);
        site.http.clone_from(&spec.http);
        if let Some(listen) = &spec.listen {
            site.listen.clone_from(listen);
        }
        site.write(&[SERVER4.to_string(), SERVER6.to_string()])?;
        let instance =
            Self { spec, names, site, server, client, far, binaries: binaries.clone(), upstream: None };
        instance.link_far()?;
        if matches!(instance.spec.device, Device::AfPacket | Device::Kernel) {
            instance.link_veth()?;
        }
        instance.write_conf()?;
        Ok(instance)
    }

    /// Makes and starts an instance, and waits until it answers over IPv4 and IPv6.
    ///
    /// # Errors
    /// As [`Instance::prepare`] and [`Instance::start`].
    pub fn started(index: u8, spec: Spec, binaries: &Binaries) -> Result<Self, Failure> {
        let mut instance = Self::prepare(index, spec, binaries)?;
        instance.start()?;
        Ok(instance)
    }

    /// Starts the server and its upstream.
    ///
    /// # Errors
    /// What `ffctl start` or nginx printed; no answer within 10 s.
    pub fn start(&mut self) -> Result<(), Failure> {
        if self.upstream.is_none() {
            self.upstream = Some(Upstream::start(&self.server, &self.site)?);
        }
        if self.spec.device.ours() {
            let out = self.ffctl_start()?;
            ensure!(out.success(), "ffctl start: exit code {}: {}", out.code(), out.all());
        } else {
            let conf = self.site.conf();
            let args = ["-c", path(&conf)?];
            let out = run_in(&self.server, "/usr/sbin/nginx", &args, Duration::from_secs(20))?;
            ensure!(out.success(), "nginx: {}", out.all());
        }
        self.connect_tap()?;
        self.wait_answer()
    }

    /// `ffctl start -c` alone, as a person would run it.
    ///
    /// # Errors
    /// It did not end within 60 s.
    pub fn ffctl_start(&self) -> Result<Output, Failure> {
        self.ffctl(&["start", "-c", path(&self.stack_conf())?])
    }

    /// Stops the server: `ffctl stop`, or QUIT to kernel nginx.
    ///
    /// # Errors
    /// What was printed.
    pub fn stop(&mut self) -> Result<(), Failure> {
        if self.spec.device.ours() {
            let out = self.ffctl(&["stop", "--now", "-i", &self.names.instance])?;
            ensure!(out.success(), "ffctl stop: exit code {}: {}", out.code(), out.all());
        } else if let Some(pid) = self.master_pid() {
            proc::signal(pid, Signal::SIGTERM);
            ensure!(proc::gone_within(pid, Duration::from_secs(10)), "nginx did not end within 10 s");
        }
        Ok(())
    }

    /// Runs `ffctl` in the server's namespace.
    ///
    /// # Errors
    /// It did not end within 60 s.
    pub fn ffctl(&self, args: &[&str]) -> Result<Output, Failure> {
        let mut command = self.server.command(path(&self.binaries.ffctl())?);
        command.args(args);
        run(command, Duration::from_secs(60))
    }

    /// A command for `ff-loadgen` at the client's end of the instance's wire.
    pub fn loadgen(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.binaries.loadgen());
        command.args(["--instance", &self.names.instance]).args(args);
        command
    }

    /// A command for `ffctl` in the server's namespace, to be run by the caller.
    pub fn ffctl_command(&self) -> Command {
        self.server.command(&self.binaries.ffctl().to_string_lossy())
    }

    /// `ffctl status --json`.
    ///
    /// # Errors
    /// It failed, or printed no JSON.
    pub fn status(&self) -> Result<Value, Failure> {
        let out = self.ffctl(&["status", "--json", "-i", &self.names.instance])?;
        // Exit code 1 with a document: the primary is dead, and the document says so.
        ensure!(
            out.code() <= 1 && !out.stdout.is_empty(),
            "ffctl status: exit code {}: {}",
            out.code(),
            out.all()
        );
        serde_json::from_str(&out.stdout).map_err(|error| Failure(format!("{error}: {}", out.stdout)))
    }

    /// Pid of nginx's master.
    pub fn master_pid(&self) -> Option<u32> {
        let pid = fs::read_to_string(self.site.dir.join("nginx.pid")).ok()?.trim().parse().ok()?;
        proc::alive(pid).then_some(pid)
    }

    /// Pids of nginx's workers.
    pub fn worker_pids(&self) -> Vec<u32> {
        self.master_pid().map(proc::children).unwrap_or_default()
    }

    /// The configuration file for `ffctl`.
    pub fn stack_conf(&self) -> PathBuf {
        self.site.dir.join("f-stack.conf")
    }

    /// The instance's runtime directory.
    pub fn runtime(&self) -> PathBuf {
        PathBuf::from("/run/ffstack").join(&self.names.instance)
    }

    /// The server's address for IPv4 (`false`) or IPv6.
    pub fn addr(&self, v6: bool, port: u16) -> SocketAddr {
        let ip = if v6 { IpAddr::V6(SERVER6) } else { IpAddr::V4(SERVER4) };
        SocketAddr::new(ip, port)
    }

    /// Name of the client's end of the device.
    pub fn client_link(&self) -> String {
        match self.spec.device {
            Device::Tap | Device::Wire => self.names.instance.clone(),
            Device::AfPacket | Device::Kernel => format!("{}v", self.names.instance),
        }
    }

    /// Moves a TAP's kernel end into the client namespace, if it is there, and configures it.
    ///
    /// # Errors
    /// What `ip` printed.
    pub fn connect_tap(&self) -> Result<(), Failure> {
        if self.spec.device != Device::Tap {
            return Ok(());
        }
        let link = self.client_link();
        // A restart makes a new TAP; what the old one left in the namespace is gone with it.
        self.server.ip(&["link", "set", &link, "netns", self.client.name()])?;
        self.client.ip(&["link", "set", &link, "address", CLIENT_MAC])?;
        self.configure_client(&link)
    }

    /// Waits until the server answers over both address families.
    ///
    /// # Errors
    /// The last failure after 10 s.
    pub fn wait_answer(&self) -> Result<(), Failure> {
        if self.spec.device == Device::Wire {
            for v6 in [false, true] {
                let url = format!("http://{}/hello", self.addr(v6, 80));
                let out = run(self.loadgen(&[&url, "-n", "1", "--timeout", "10"]), Duration::from_secs(20))?;
                ensure!(out.success(), "no answer from {url}: {}", out.all());
            }
            return Ok(());
        }
        self.client.within(|| {
            for v6 in [false, true] {
                let mut last = Failure::from("no attempt was made");
                let answered = proc::until(Duration::from_secs(10), || match hello(self.addr(v6, 80)) {
                    Ok(()) => true,
                    Err(failure) => {
                        last = failure;
                        false
                    }
                });
                ensure!(answered, "no answer from {} within 10 s: {last}", self.addr(v6, 80));
            }
            Ok(())
        })
    }

    /// The last lines of the logs, for a failure.
    pub fn log_tails(&self) -> String {
        let mut text = String::new();
        for log in [self.runtime().join("primary.log"), self.site.error_log()] {
            let Ok(content) = fs::read_to_string(&log) else { continue };
            let lines: Vec<&str> = content.lines().collect();
            let _ = writeln!(text, "  --- {}", log.display());
            for line in &lines[lines.len().saturating_sub(12)..] {
                let _ = writeln!(text, "  {}", line.chars().take(300).collect::<String>());
            }
        }
        text
    }

    /// Writes f-stack.conf for the spec.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_conf(&self) -> Result<(), Failure> {
        let port = self.spec.port.clone().unwrap_or_else(|| match self.spec.device {
            Device::AfPacket => format!("device=af_packet:{}", self.names.instance),
            Device::Wire => "device=wire".to_owned(),
            Device::Tap | Device::Kernel => format!("device=tap:{}", self.names.instance),
        });
        let text = format!(
            "[port0]\n{port}\nmac={STACK_MAC}\naddr={SERVER4}\nnetmask=255.255.255.0\ngateway=198.18.7.1\n\
             addr6={SERVER6}\nprefix_len=64\ngateway6=2001:2:0:7::1\n\n[nginx]\nbinary=/usr/sbin/nginx\n\
             conf={}\n\n[instance]\nname={}\n\n{}\n",
            self.site.conf().display(),
            self.names.instance,
            self.spec.stack
        );
        fs::write(self.stack_conf(), text).doing("writing f-stack.conf")
    }

    /// A veth pair between the server's and the clients' namespaces.
    fn link_veth(&self) -> Result<(), Failure> {
        let near = &self.names.instance;
        let link = self.client_link();
        self.server.ip(&[
            "link",
            "add",
            near,
            "type",
            "veth",
            "peer",
            "name",
            &link,
            "netns",
            self.client.name(),
        ])?;
        self.client.ip(&["link", "set", &link, "address", CLIENT_MAC])?;
        if self.spec.device.ours() {
            // Our stack sees what is on the wire: no half-done checksums and no oversize frames from the peer.
            self.offloads_off(&self.server, near)?;
            self.offloads_off(&self.client, &link)?;
            self.server.ip(&["link", "set", near, "address", STACK_MAC])?;
            self.server.ip(&["link", "set", near, "up"])?;
        } else {
            self.server.ip(&["addr", "add", &format!("{SERVER4}/24"), "dev", near])?;
            self.server.ip(&["addr", "add", &format!("{SERVER6}/64"), "dev", near, "nodad"])?;
            self.server.ip(&["link", "set", near, "up"])?;
            self.server.ip(&["route", "add", "default", "via", "198.18.7.1"])?;
            self.server.ip(&["-6", "route", "add", "default", "via", "2001:2:0:7::1"])?;
            self.server.sysctl("net.core.somaxconn=4096")?;
        }
        self.configure_client(&link)
    }

    fn offloads_off(&self, netns: &Netns, link: &str) -> Result<(), Failure> {
        let args = ["-K", link, "tx", "off", "tso", "off", "gso", "off", "gro", "off"];
        let out = run_in(netns, "ethtool", &args, Duration::from_secs(10))?;
        ensure!(out.success(), "ethtool: {}", out.all());
        Ok(())
    }

    fn configure_client(&self, link: &str) -> Result<(), Failure> {
        self.client.ip(&["addr", "replace", "198.18.7.1/24", "dev", link])?;
        self.client.ip(&["addr", "replace", "2001:2:0:7::1/64", "dev", link, "nodad"])?;
        self.client.ip(&["link", "set", link, "up"])
    }

    /// The namespace behind the clients' one. Its frames have wire size, so that the router drops single packets.
    fn link_far(&self) -> Result<(), Failure> {
        let (near, behind) = (format!("{}g", self.names.instance), format!("{}h", self.names.instance));
        self.client.ip(&[
            "link",
            "add",
            &near,
            "type",
            "veth",
            "peer",
            "name",
            &behind,
            "netns",
            self.far.name(),
        ])?;
        self.offloads_off(&self.client, &near)?;
        self.offloads_off(&self.far, &behind)?;
        self.client.ip(&["addr", "add", "198.18.8.1/24", "dev", &near])?;
        self.client.ip(&["addr", "add", "2001:2:0:8::1/64", "dev", &near, "nodad"])?;
        self.client.ip(&["link", "set", &near, "up"])?;
        self.far.ip(&["addr", "add", "198.18.8.2/24", "dev", &behind])?;
        self.far.ip(&["addr", "add", "2001:2:0:8::2/64", "dev", &behind, "nodad"])?;
        self.far.ip(&["link", "set", &behind, "up"])?;
        self.far.ip(&["route", "add", "default", "via", "198.18.8.1"])?;
        self.far.ip(&["-6", "route", "add", "default", "via", "2001:2:0:8::1"])?;
        for netns in [&self.client, &self.far] {
            // Many short connections: no port of a client may be scarce.
            netns.sysctl("net.ipv4.ip_local_port_range=1024 65535")?;
        }
        self.client.sysctl("net.ipv4.ip_forward=1")?;
        self.client.sysctl("net.ipv6.conf.all.forwarding=1")
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if self.spec.device.ours() && self.runtime().exists() {
            let _ = self.stop();
        }
        self.upstream = None;
        // The namespaces' own drop ends whatever still runs in them.
    }
}

/// One request over a fresh connection.
fn hello(addr: SocketAddr) -> Result<(), Failure> {
    let mut connection = http::Connection::open(addr)?;
    connection.stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    connection.get("/hello")?;
    let (head, body) = connection.response()?;
    ensure!(head.status == 200 && body == b"hello\n", "GET /hello: status {}", head.status);
    Ok(())
}

/// A path as an argument.
fn path(path: &Path) -> Result<&str, Failure> {
    path.to_str().doing("a path is not UTF-8")
}
