use super::*;

fn dump(files: &[(&str, &str)]) -> String {
    files.iter().map(|(name, text)| format!("# configuration file {name}:\n{text}\n\n")).collect()
}

fn main_file(text: &str) -> Result<MainSettings, DumpError> {
    parse(&dump(&[("/etc/nginx/nginx.conf", text)]))
}

#[test]
fn debians_own_configuration() {
    let text = dump(&[
        (
            "/etc/nginx/nginx.conf",
            "user www-data;\nworker_processes auto;\npid /run/nginx.pid;\nerror_log /var/log/nginx/error.log;\n\
             include /etc/nginx/modules-enabled/*.conf;\n\nevents {\n\tworker_connections 768;\n}\n\
             http {\n\t# gzip on;\n\tinclude /etc/nginx/mime.types;\n\tlog_format a '$host {';\n}\n",
        ),
        ("/etc/nginx/mime.types", "types {\n text/html html htm;\n}\n"),
    ]);
    let expected = MainSettings {
        worker_processes: WorkerProcesses::Auto,
        pid: Some("/run/nginx.pid".into()),
        error_log: Some("/var/log/nginx/error.log".into()),
        ..MainSettings::default()
    };
    assert_eq!(parse(&text).unwrap(), expected);
}

#[test]
fn what_is_absent_is_nginxs_default() {
    let settings = main_file("events {}\n").unwrap();
    assert_eq!(settings, MainSettings::default());
    assert_eq!(settings.worker_processes, WorkerProcesses::Count(1));
}

#[test]
fn directives_inside_of_blocks_are_not_the_main_ones() {
    let settings = main_file(
        "worker_processes 3; events { worker_connections 10; }\n\
         http { map $uri $x { daemon off; include maps/*.map; } server { location ~ \"^/a{1,2};\" { } }\n\
         set $y ${uri}daemon; }\n\
         worker_shutdown_timeout 1m30s;",
    )
    .unwrap();
    assert_eq!(settings.worker_processes, WorkerProcesses::Count(3));
    assert!(settings.daemon);
    assert_eq!(settings.worker_shutdown_timeout_ms, Some(90_000));
}

#[test]
fn includes_are_followed_from_the_main_context_only() {
    let text = dump(&[
        (
            "/opt/n/nginx.conf",
            "include main.d/*.conf;\nevents {}\nhttp { map $a $b { include maps/a.map; } include vhosts/*; }\n",
        ),
        ("/opt/n/main.d/10-workers.conf", "worker_processes 4; include deeper.conf;"),
        ("/opt/n/deeper.conf", "master_process off;"),
        ("/opt/n/maps/a.map", "daemon off;\npid wrong;\n"),
        ("/opt/n/vhosts/x", "server { listen 80; }"),
    ]);
    let settings = parse(&text).unwrap();
    assert_eq!(settings.worker_processes, WorkerProcesses::Count(4));
    assert!(!settings.master_process);
    assert!(settings.daemon);
    assert_eq!(settings.pid, None);
}

#[test]
fn comments_quotes_and_escapes() {
    let settings = main_file(
        "# worker_processes 9;\nworker_processes \"2\"; # daemon off;\npid '/run/a b;c.pid';\ndaemon OFF;\n\
         error_log /var/log/a\\;b;\n",
    )
    .unwrap();
    assert_eq!(settings.worker_processes, WorkerProcesses::Count(2));
    assert_eq!(settings.pid, Some("/run/a b;c.pid".into()));
    assert!(!settings.daemon);
}

#[test]
fn times_as_nginx_reads_them() {
    for (text, ms) in [
        ("90", Some(90_000)),
        ("90s", Some(90_000)),
        ("1500ms", Some(1_500)),
        ("1h 5m", Some(3_900_000)),
        ("1d", Some(86_400_000)),
        ("0", Some(0)),
        ("", None),
        ("s", None),
        ("5x", None),
        ("99999999999999999999", None),
        ("18446744073709551615d", None),
    ] {
        assert_eq!(duration_ms(text), ms, "{text:?}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    assert_eq!(parse("nginx: something\n"), Err(DumpError::Empty));
    let error = main_file("worker_processes many;").unwrap_err();
    assert_eq!(
        error.to_string(),
        "/etc/nginx/nginx.conf: the value of `worker_processes` is not understood: \"many\""
    );
    // Cut in the middle: nothing is made up.
    assert_eq!(main_file("worker_processes 4"), Ok(MainSettings::default()));
    assert_eq!(main_file("worker_processes \"4"), Ok(MainSettings::default()));
}

#[test]
fn directives_of_the_command_line() {
    let mut settings = MainSettings::default();
    apply_global(&mut settings, "daemon off; worker_processes 4;").unwrap();
    assert!(!settings.daemon);
    assert_eq!(settings.worker_processes, WorkerProcesses::Count(4));
    let error = apply_global(&mut settings, "daemon maybe;").unwrap_err();
    assert_eq!(error.to_string(), "-g: the value of `daemon` is not understood: \"maybe\"");
}

#[test]
fn sockets_in_the_file_system() {
    let dump = "# configuration file /etc/nginx/nginx.conf:\nhttp { server { listen 80; listen unix:/run/a.sock default_server; \
                } include b.conf; }\n# configuration file /etc/nginx/b.conf:\nserver { # listen unix:/no;\n listen \
                'unix:/run/b.sock'; listen unix:/run/a.sock; }\n";
    assert_eq!(unix_listeners(dump), [PathBuf::from("/run/a.sock"), PathBuf::from("/run/b.sock")]);
    assert_eq!(unix_listeners(""), Vec::<PathBuf>::new());
}
