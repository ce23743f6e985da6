//! What nginx serves: its configuration, the files, a certificate.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};

use crate::{Context, Failure, ensure, pattern, run};

/// 1024 bytes.
pub const KIB: u64 = 1024;
/// 1024 KiB.
pub const MIB: u64 = 1024 * KIB;
/// 1024 MiB.
pub const GIB: u64 = 1024 * MIB;

/// A site's directory and how nginx is to serve it.
#[derive(Debug, Clone)]
pub struct Site {
    /// Directory of configuration, files and logs.
    pub dir: PathBuf,
    /// `worker_processes`.
    pub workers: usize,
    /// Port of the HTTP upstream on the server's loopback.
    pub upstream_port: u16,
    /// Port of the echo service on the server's loopback.
    pub echo_port: u16,
    /// Further lines at nginx's top level.
    pub main: String,
    /// Further lines of the `http` block.
    pub http: String,
    /// Further parameters of `listen 80` and `listen [::]:80`.
    pub listen: String,
    /// Write an access log.
    pub access_log: bool,
}

impl Site {
    /// A site with two workers.
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            workers: 2,
            upstream_port: 7080,
            echo_port: 7007,
            main: String::new(),
            http: String::new(),
            listen: "backlog=4096".into(),
            access_log: false,
        }
    }

    /// nginx's configuration file.
    pub fn conf(&self) -> PathBuf {
        self.dir.join("nginx.conf")
    }

    /// nginx's error log.
    pub fn error_log(&self) -> PathBuf {
        self.dir.join("error.log")
    }

    /// The certificate that `https` shows, for clients to trust.
    pub fn certificate(&self) -> PathBuf {
        self.dir.join("cert.pem")
    }

    /// Where uploads to `/dav/` land.
    pub fn dav(&self, name: &str) -> PathBuf {
        self.dir.join("dav").join(name)
    }

    /// Makes the directory, the small files, a certificate for `names` (IP addresses) and the configuration.
    ///
    /// # Errors
    /// Those of the file system and of `openssl`.
    pub fn write(&self, names: &[String]) -> Result<(), Failure> {
        for sub in ["html", "dav", "temp"] {
            let path = self.dir.join(sub);
            fs::create_dir_all(&path)?;
            // Workers run as www-data and write uploads.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777))?;
        }
        fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o755))?;
        fs::write(self.dir.join("html/index.html"), "<p>served by nginx\n")?;
        let text: String = (0..4000).fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "line {line} of a text that compresses well");
            text
        });
        fs::write(self.dir.join("html/text.txt"), text)?;
        self.file("small.bin", 600)?;
        self.file("m1.bin", MIB)?;
        if !self.certificate().exists() {
            self.make_certificate(names)?;
        }
        self.write_conf()
    }

    /// Writes nginx's configuration alone, for a change while it runs.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_conf(&self) -> Result<(), Failure> {
        fs::write(self.conf(), self.conf_text()).doing("writing nginx.conf")
    }

    /// A file of the pattern with `len` bytes; its seed is its length. Made once.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn file(&self, name: &str, len: u64) -> Result<(), Failure> {
        // Two cases must not write the same file at once.
        static WRITING: Mutex<()> = Mutex::new(());
        let _guard = WRITING.lock().map_err(|_| "another case panicked while writing a file")?;
        let path = self.dir.join("html").join(name);
        if fs::metadata(&path).is_ok_and(|meta| meta.len() == len) {
            return Ok(());
        }
        pattern::write_file(&path, len, len).doing(format!("writing {}", path.display()))
    }

    fn make_certificate(&self, names: &[String]) -> Result<(), Failure> {
        let alt: Vec<String> = names.iter().map(|name| format!("IP:{name}")).collect();
        let mut command = Command::new("openssl");
        command
            .args(["req", "-x509", "-nodes", "-days", "30", "-newkey", "ec", "-pkeyopt"])
            .args(["ec_paramgen_curve:prime256v1", "-subj", "/CN=ffstack test", "-addext"])
            .arg(format!("subjectAltName={}", alt.join(",")))
            .arg("-keyout")
            .arg(self.dir.join("key.pem"))
            .arg("-out")
            .arg(self.certificate());
        let out = run(command, Duration::from_secs(20))?;
        ensure!(out.success(), "openssl req: {}", out.stderr);
        Ok(())
    }

    fn conf_text(&self) -> String {
        let Self { workers, upstream_port, echo_port, main, http, listen, .. } = self;
        let dir = self.dir.display();
        // Without CAP_SYS_RESOURCE nginx cannot go beyond the hard limit that it inherits.
        let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(_, hard)| hard.min(65_536));
        let b600 = "0123456789".repeat(60);
        let access = if self.access_log { format!("{dir}/access.log") } else { "off".to_owned() };
        format!(
            r#"load_module /usr/lib/nginx/modules/ngx_stream_module.so;
user www-data;
worker_processes {workers};
worker_rlimit_nofile {files};
pid {dir}/nginx.pid;
error_log {dir}/error.log notice;
{main}
events {{
    worker_connections {files};
}}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    access_log {access};
    keepalive_requests 100000000;
    client_max_body_size 0;
    client_body_temp_path {dir}/temp/body;
    proxy_temp_path {dir}/temp/proxy;
    fastcgi_temp_path {dir}/temp/fastcgi;
    uwsgi_temp_path {dir}/temp/uwsgi;
    scgi_temp_path {dir}/temp/scgi;
    {http}
    server {{
        listen 80 {listen};
        listen [::]:80 {listen};
        listen 443 ssl http2;
        listen [::]:443 ssl http2;
        ssl_certificate {dir}/cert.pem;
        ssl_certificate_key {dir}/key.pem;
        ssl_protocols TLSv1.2 TLSv1.3;
        root {dir}/html;
        location / {{
            sendfile on;
            tcp_nopush on;
        }}
        location /nosendfile/ {{
            alias {dir}/html/;
            sendfile off;
        }}
        location /aio/ {{
            alias {dir}/html/;
            sendfile on;
            aio threads;
        }}
        location /gzip/ {{
            alias {dir}/html/;
            gzip on;
            gzip_min_length 0;
            gzip_types *;
        }}
        location /slow/ {{
            alias {dir}/html/;
            send_timeout 2s;
            reset_timedout_connection on;
        }}
        location = /hello {{
            return 200 "hello\n";
        }}
        location = /b600 {{
            return 200 "{b600}";
        }}
        location /dav/ {{
            alias {dir}/dav/;
            dav_methods PUT DELETE;
            create_full_put_path on;
        }}
        location /up/ {{
            proxy_pass http://127.0.0.1:{upstream_port}/;
            proxy_http_version 1.1;
            proxy_request_buffering off;
            proxy_buffering off;
        }}
        location /ws {{
            proxy_pass http://127.0.0.1:{upstream_port}/ws;
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection upgrade;
        }}
    }}
}}
stream {{
    server {{
        listen 7000;
        listen [::]:7000;
        proxy_pass 127.0.0.1:{echo_port};
        proxy_half_close on;
    }}
}}
"#
        )
    }
}
