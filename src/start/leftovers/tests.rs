use std::os::unix::net::UnixListener;

use super::*;

#[test]
fn a_socket_is_removed_only_when_nobody_listens() {
    let dir = std::env::temp_dir().join(format!("ffctl-stale-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let [stale, served, file, absent] = ["stale", "served", "file", "absent"].map(|name| dir.join(name));
    drop(UnixListener::bind(&stale).unwrap());
    let _listener = UnixListener::bind(&served).unwrap();
    fs::write(&file, "kept").unwrap();
    remove_stale_sockets(&[stale.clone(), served.clone(), file.clone(), absent]).unwrap();
    let left = [stale, served, file].map(|path| path.exists());
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(left, [false, true, true]);
}
