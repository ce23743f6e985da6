use super::*;

#[test]
fn paths_compiled_into_debians_nginx() {
    let text = "nginx version: nginx/1.22.1\nbuilt with OpenSSL\nTLS SNI support enabled\nconfigure arguments: \
                --with-cc-opt='-g -O2 -fPIC' --prefix=/usr/share/nginx --conf-path=/etc/nginx/nginx.conf \
                --error-log-path=stderr --pid-path=/run/nginx.pid --modules-path=/usr/lib/nginx/modules\n";
    let paths = CompiledPaths::parse(text);
    let expected = CompiledPaths {
        prefix: "/usr/share/nginx".into(),
        pid: "/run/nginx.pid".into(),
        error_log: "stderr".into(),
    };
    assert_eq!(paths, expected);
    assert_eq!(paths.pid_path(Some(Path::new("/opt/x"))), Path::new("/run/nginx.pid"));
}

#[test]
fn a_relative_pid_file_is_below_the_prefix() {
    let paths = CompiledPaths::parse("configure arguments: --with-debug");
    assert_eq!(paths.pid_path(None), Path::new("/usr/local/nginx/logs/nginx.pid"));
    assert_eq!(paths.pid_path(Some(Path::new("/opt/x"))), Path::new("/opt/x/logs/nginx.pid"));
}

#[test]
fn directives_on_the_command_line() {
    let options: Vec<String> =
        ["-e", "stderr", "-g", "daemon off;", "-gworker_processes 2;", "-q", "-g"].map(String::from).into();
    assert_eq!(globals(&options).collect::<Vec<_>>(), ["daemon off;", "worker_processes 2;"]);
}

#[test]
fn a_command_is_run_to_its_end_and_its_output_taken() {
    let mut command = Command::new("sh");
    // More than a pipe holds, on both.
    command.args(["-c", "seq 1 40000; seq 1 40000 >&2; exit 3"]).stdin(Stdio::null());
    let output = run(&mut command, &Interrupt::default()).unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.ends_with("\n40000\n") && output.stderr.ends_with("\n40000\n"));
    let absent = run(&mut Command::new("/nonexistent/nginx"), &Interrupt::default()).err().unwrap();
    assert!(absent.sentence.starts_with("/nonexistent/nginx: cannot be run"), "{absent}");
}
