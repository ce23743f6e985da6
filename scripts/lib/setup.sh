# What the scripts need from the machine: Debian packages, a Rust toolchain, hugepages, a TUN device.
# Sourced, never run. Every function is idempotent, silent when nothing is to be done, and says in one
# sentence what it changes or what is missing.

FF_REPO=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
FF_BIN=${CARGO_TARGET_DIR:-$FF_REPO/target}/release

# 2 MiB pages that one instance of the default size and one instance of the tests need side by side.
FF_HUGEPAGES=${FF_HUGEPAGES:-768}
FF_HUGEPAGE_DIR=/dev/hugepages

# To build and to run.
FF_PACKAGES_RUN=(build-essential pkg-config libdpdk-dev dpdk libclang-dev nginx libnginx-mod-stream iproute2 curl kmod
    util-linux procps)
# To test and to measure.
FF_PACKAGES_TEST=(wget openssl python3 python3-requests wrk nghttp2-client nftables ethtool iputils-ping)

ff_say() { printf '%s\n' "$*"; }

# Ends the script with one sentence on standard error.
ff_fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

ff_need_root() {
    [ "$(id -u)" = 0 ] || ff_fail "this needs root (TAP devices, network namespaces, hugepages): run it as sudo $0${*:+ $*}"
}

# Installs by name what is missing of the packages given.
ff_packages() {
    local missing=() name
    if ! command -v dpkg-query >/dev/null; then
        ff_fail "this machine has no dpkg: install the equivalents of these Debian packages by hand: $*"
    fi
    local installed
    installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii  *//p')
    for name in "$@"; do
        grep -qxF -- "$name" <<<"$installed" || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || ff_fail "these Debian packages are missing and there is no apt-get to install them: ${missing[*]}"
    [ "$(id -u)" = 0 ] || ff_fail "these Debian packages are missing: sudo apt-get install ${missing[*]}"
    ff_say "installing Debian packages: ${missing[*]}"
    local log
    log=$(mktemp)
    if ! { DEBIAN_FRONTEND=noninteractive apt-get update -q &&
        DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 9<&-; then
        tail -n 15 "$log" >&2
        rm -f "$log"
        ff_fail "apt-get could not install: ${missing[*]} (its last lines are above)"
    fi
    rm -f "$log"
}

# A cargo that is new enough for the workspace.
ff_rust() {
    local need have
    need=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$FF_REPO/Cargo.toml" | head -n 1)
    # A login shell's PATH is not always there (sudo).
    if ! command -v cargo >/dev/null && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
        PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    fi
    if ! command -v cargo >/dev/null && [ -n "${SUDO_USER:-}" ]; then
        local home
        home=$(getent passwd "$SUDO_USER" | cut -d: -f6)
        [ ! -x "$home/.cargo/bin/cargo" ] || PATH=$home/.cargo/bin:$PATH RUSTUP_HOME=${RUSTUP_HOME:-$home/.rustup}
        export RUSTUP_HOME
    fi
    command -v cargo >/dev/null ||
        ff_fail "cargo is missing: install Rust $need or newer from https://rustup.rs (Debian 12's own rustc is too old)"
    have=$(rustc --version | cut -d' ' -f2)
    [ "$(printf '%s\n%s\n' "$need" "$have" | sort -V | head -n 1)" = "$need" ] ||
        ff_fail "rustc $have is too old, $need or newer is needed: rustup update stable"
}

# At least FF_HUGEPAGES pages of 2 MiB, mounted on FF_HUGEPAGE_DIR. Calls ff_record NAME VALUE (if the
# script defines it) before each change, so that the change can be taken back.
ff_hugepages() {
    local have
    have=$(cat /proc/sys/vm/nr_hugepages 2>/dev/null) || ff_fail "this kernel has no hugepages (CONFIG_HUGETLBFS)"
    if [ "$have" -lt "$FF_HUGEPAGES" ]; then
        ! declare -F ff_record >/dev/null || ff_record hugepages_before "$have"
        sysctl -q -w vm.nr_hugepages="$FF_HUGEPAGES" || ff_fail "vm.nr_hugepages cannot be changed: is this a container without privileges?"
        have=$(cat /proc/sys/vm/nr_hugepages)
        if [ "$have" -lt "$FF_HUGEPAGES" ]; then
            # Free memory may only be in small pieces: let the kernel put it together, and try once more.
            sync
            echo 3 >/proc/sys/vm/drop_caches 2>/dev/null || true
            echo 1 >/proc/sys/vm/compact_memory 2>/dev/null || true
            sysctl -q -w vm.nr_hugepages="$FF_HUGEPAGES"
            have=$(cat /proc/sys/vm/nr_hugepages)
        fi
        [ "$have" -ge "$FF_HUGEPAGES" ] ||
            ff_fail "only $have of $FF_HUGEPAGES hugepages (2 MiB each) could be had: free some memory, or reboot with hugepages=$FF_HUGEPAGES"
    fi
    if ! mountpoint -q "$FF_HUGEPAGE_DIR"; then
        ! declare -F ff_record >/dev/null || ff_record mounted "$FF_HUGEPAGE_DIR"
        mkdir -p "$FF_HUGEPAGE_DIR"
        mount -t hugetlbfs -o pagesize=2M nodev "$FF_HUGEPAGE_DIR" || ff_fail "hugetlbfs cannot be mounted on $FF_HUGEPAGE_DIR"
    fi
}

ff_tun() {
    [ -c /dev/net/tun ] || modprobe tun 2>/dev/null || true
    [ -c /dev/net/tun ] || ff_fail "/dev/net/tun is missing: the kernel module tun cannot be loaded, or the container does not offer the device"
}

# Builds everything, always the whole workspace: another choice of crates would be another choice of features,
# and the next script would build half of it again. Without the caller's lock: a compiler that outlives an
# interrupted script must not keep it.
ff_build() {
    (cd "$FF_REPO" && cargo build --release --workspace "$@") 9<&- || ff_fail "the build failed (see above)"
}
