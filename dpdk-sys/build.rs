//! Generates the bindings from the libdpdk that `pkg-config` finds, and compiles the static inlines.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// Shared libraries whose symbols are used. Drivers are plug-ins that EAL loads itself.
const LIBRARIES: &[&str] = &["rte_eal", "rte_mempool", "rte_mbuf", "rte_ring", "rte_ethdev"];

/// Functions that libdpdk exports and `ff-dpdk` calls.
const FUNCTIONS: &[&str] = &[
    "rte_eal_init",
    "rte_eal_cleanup",
    "rte_service_finalize",
    "rte_eal_process_type",
    "rte_strerror",
    "rte_version",
    "rte_lcore_count",
    "rte_get_tsc_hz",
    "rte_pktmbuf_pool_create_by_ops",
    "rte_pktmbuf_free_bulk",
    "rte_mbuf_dynfield_register",
    "rte_mbuf_dynfield_lookup",
    "rte_mempool_lookup",
    "rte_mempool_free",
    "rte_mempool_avail_count",
    "rte_mempool_obj_iter",
    "rte_ring_create",
    "rte_ring_lookup",
    "rte_ring_free",
    "rte_memzone_reserve_aligned",
    "rte_memzone_lookup",
    "rte_memzone_free",
    "rte_eal_hotplug_add",
    "rte_eal_hotplug_remove",
    "rte_eth_dev_get_port_by_name",
    "rte_eth_dev_count_avail",
    "rte_eth_dev_is_valid_port",
    "rte_eth_dev_start",
    "rte_eth_dev_stop",
    "rte_eth_dev_close",
    "rte_eth_rx_queue_setup",
    "rte_eth_tx_queue_setup",
    "rte_eth_promiscuous_enable",
    "rte_eth_promiscuous_disable",
    "rte_eth_promiscuous_get",
    "rte_eth_allmulticast_enable",
    "rte_eth_dev_get_mtu",
    "rte_eth_dev_set_mtu",
    "rte_eth_macaddr_get",
    "rte_eth_stats_get",
    "rte_eth_stats_reset",
    "rte_eth_dev_rx_intr_enable",
    "rte_eth_dev_rx_intr_disable",
    "rte_eth_dev_rx_intr_ctl_q_get_fd",
    "ff_.*",
];

fn pkg_config(arguments: &[&str]) -> String {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    let output = match Command::new(&program).args(arguments).arg("libdpdk").output() {
        Ok(output) => output,
        Err(error) => panic!("cannot run {program}: {error}; install pkg-config"),
    };
    assert!(
        output.status.success(),
        "pkg-config does not know libdpdk; install it (Debian: apt-get install libdpdk-dev)\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn main() {
    for file in ["build.rs", "wrapper.h", "inlined.c"] {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-env-changed=PKG_CONFIG");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");

    let version = pkg_config(&["--modversion"]);
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let release = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    assert!(release >= (22, 11), "libdpdk {version} is too old: 22.11 or newer is needed");

    // The inlines of DPDK need the instruction set that the library was built for, and no more than that.
    let flags: Vec<String> = pkg_config(&["--cflags"]).split_whitespace().map(str::to_owned).collect();

    let mut c = cc::Build::new();
    c.file("inlined.c").include(".").opt_level(3).warnings(true).flag("-Wno-deprecated-declarations");
    for flag in &flags {
        c.flag(flag);
    }
    c.compile("ff_dpdk_inlined");

    let search = pkg_config(&["--libs-only-L"]);
    for path in search.split_whitespace().filter_map(|flag| flag.strip_prefix("-L")) {
        println!("cargo:rustc-link-search=native={path}");
    }
    for library in LIBRARIES {
        println!("cargo:rustc-link-lib=dylib={library}");
    }

    let mut bindings = bindgen::Builder::default()
        .header("wrapper.h")
        .clang_args(&flags)
        .use_core()
        .layout_tests(false)
        .generate_comments(false)
        .derive_debug(false)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .allowlist_recursively(true)
        // Their layout changes between releases; what is needed of them goes through inlined.c.
        .opaque_type("rte_mbuf")
        .opaque_type("rte_mempool")
        .opaque_type("rte_ring")
        .opaque_type("rte_eth_rxconf")
        .opaque_type("rte_eth_txconf")
        .allowlist_type("rte_memzone|rte_eth_stats|rte_ether_addr|rte_proc_type_t|ff_.*")
        .allowlist_var("FF_.*|RTE_PROC_.*|RTE_MAX_LCORE|RTE_PKTMBUF_HEADROOM|RTE_MEMZONE_NAMESIZE");
    for function in FUNCTIONS {
        bindings = bindings.allowlist_function(function);
    }
    let generated = bindings.generate().expect("bindgen failed: is libclang installed (libclang-dev)?");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    generated.write_to_file(out.join("bindings.rs")).expect("OUT_DIR is writable");
}
