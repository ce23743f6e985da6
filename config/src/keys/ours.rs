//! The sections that F-Stack does not have.

use super::{Key, Section, Status, words, works, works_by};
use crate::settings::NoFreeSlot;
use crate::value::{self, Kind};

const fn section(name: &'static str, meaning: &'static str, keys: &'static [Key]) -> Section {
    Section { name, numbered: false, status: Status::Works, meaning, keys, open: false }
}

pub(super) static INSTANCE: Section = section(
    "instance",
    "The instance: several may run on one host when their names, devices and addresses differ.",
    &[
        works!("name", Kind::Name { chars_max: 32 }, "default", instance.name, "Name of the instance.")
            .device(),
        works!(
            "runtime_dir",
            Kind::Path,
            "(/run/ffstack/ and the name)",
            instance.runtime_dir,
            "Directory of the control socket, the logs and the state; at most 80 bytes."
        )
        .device(),
        works!(
            "hugepage_dir",
            Kind::Path,
            "/dev/hugepages",
            instance.hugepage_dir,
            "Where hugetlbfs is mounted."
        )
        .device(),
    ],
);

pub(super) static NGINX: Section = section(
    "nginx",
    "The nginx that `ffctl start` runs.",
    &[
        works!("binary", Kind::Path, "/usr/sbin/nginx", nginx.binary, "The program."),
        works!(
            "conf",
            Kind::Path,
            "/etc/nginx/nginx.conf",
            nginx.conf,
            "Its configuration file (nginx `-c`)."
        ),
        works!("prefix", Kind::Path, "(as compiled in)", nginx.prefix, "Its prefix (nginx `-p`)."),
        works_by!(
            "options",
            Kind::Arguments,
            "",
            "Further arguments, such as `-g 'worker_priority -5;'`. `-c` and `-p` have keys of their own.",
            |config, _, _, text| {
                config.nginx.options = value::read_arguments(text)?;
                Ok(())
            },
            Some(|config, _, _| Some(value::arguments_text(&config.nginx.options)))
        ),
    ],
);

pub(super) static KERNEL: Section = section(
    "kernel",
    "Which sockets stay with the kernel's stack: those bound or connected to these addresses, or bound to these ports.",
    &[
        works!(
            "addresses",
            Kind::Prefixes,
            "127.0.0.0/8;::1/128",
            kernel.addresses,
            "Local and remote addresses; loopback upstreams, for instance, are reached through the kernel."
        ),
        works!(
            "tcp_ports",
            Kind::PortRanges,
            "",
            kernel.tcp_ports,
            "TCP ports that are bound in the kernel."
        ),
        works!(
            "udp_ports",
            Kind::PortRanges,
            "",
            kernel.udp_ports,
            "UDP ports that are bound in the kernel."
        ),
    ],
);

const MIB: u64 = 1 << 20;

pub(super) static LIMITS: Section = section(
    "limits",
    "How large tables and buffers may become.",
    &[
        works!(
            "tcp_flows",
            Kind::Number { min: 1_024, max: 16_777_216, unit: "flows" },
            "131072",
            limits.tcp_flows,
            "TCP flows of one worker of one generation, half-open ones and TIME-WAIT included. Beyond it a SYN is refused and counted."
        )
        .device(),
        works!(
            "udp_flows",
            Kind::Number { min: 1_024, max: 16_777_216, unit: "flows" },
            "16384",
            limits.udp_flows,
            "UDP flows of one worker of one generation that the other generations can see."
        )
        .device(),
        works!(
            "neighbours",
            Kind::Number { min: 64, max: 65_536, unit: "entries" },
            "1024",
            limits.neighbours,
            "Entries of the host's table of neighbours (ARP and NDP)."
        )
        .device(),
        works!(
            "mbufs",
            Kind::Number { min: 512, max: 4_194_304, unit: "packets" },
            "8192",
            limits.mbufs,
            "Packet buffers of one worker of one generation. Each takes about 2.3 KiB of hugepages at MTU 1500."
        )
        .device(),
        works!(
            "rcv_buf_max",
            Kind::Size { min: 4_096, max: 1_024 * MIB },
            "6M",
            limits.rcv_buf_max_bytes,
            "No TCP receive buffer grows beyond it."
        ),
        works!(
            "snd_buf_max",
            Kind::Size { min: 4_096, max: 1_024 * MIB },
            "4M",
            limits.snd_buf_max_bytes,
            "No TCP send buffer grows beyond it."
        ),
        works!(
            "memory",
            Kind::Size { min: 16 * MIB, max: 1_024 * 1_024 * MIB },
            "1G",
            limits.memory_bytes,
            "What the buffers of all connections of one worker may hold together. Near it windows close and new connections are refused."
        ),
        works!(
            "syn_backlog",
            Kind::Number { min: 16, max: 1_048_576, unit: "handshakes" },
            "4096",
            limits.syn_backlog,
            "Half-open handshakes of one worker. Beyond it SYNs are answered with cookies, or dropped when cookies are off."
        ),
    ],
);

pub(super) static RELOAD: Section = section(
    "reload",
    "Generations and the limits of a reload. F-Stack's names in [dpdk] belong to it too.",
    &[
        works!(
            "reload_generations",
            Kind::Number { min: 2, max: 8, unit: "" },
            "4",
            reload.generations,
            "Slots: how many generations may live at once, the serving one included. Each takes `mbufs` for each worker."
        )
        .device(),
        works!(
            "no_free_slot",
            Kind::Choice(NO_FREE_SLOT),
            "wait",
            reload.no_free_slot,
            "What a reload does when every slot is taken: wait for a draining generation to end, fail with that reason, or end the oldest draining generation."
        ),
        works!(
            "ready_timeout_ms",
            Kind::Number { min: 100, max: 3_600_000, unit: "ms" },
            "60000",
            reload.ready_timeout_ms,
            "How long the new workers may take to be READY before the reload is given up."
        ),
        works!(
            "handover_timeout_ms",
            Kind::Number { min: 10, max: 600_000, unit: "ms" },
            "1000",
            reload.handover_timeout_ms,
            "How long the old workers may take to hand over their queues before the reload is given up."
        ),
        works!(
            "drain_timeout_ms",
            Kind::Number { min: 100, max: 604_800_000, unit: "ms" },
            "(nginx's worker_shutdown_timeout, or 90000)",
            reload.drain_timeout_ms,
            "How long an old generation may keep its connections before it is ended."
        ),
    ],
);

const NO_FREE_SLOT: &[&str] = &["wait", "refuse", "end_oldest"];

words!(NoFreeSlot { Wait = "wait", Refuse = "refuse", EndOldest = "end_oldest" });
