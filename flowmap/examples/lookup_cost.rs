//! What a lookup costs, one by one and in bursts of 32, by the number of flows:
//! `cargo run --release -p ff-flowmap --example lookup_cost`.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ff_flowmap::{
    FlowIndex, FlowKey, FlowRef, HeapMemory, Owner, TcpTableWriter, format_tcp_table, tcp_table_bytes,
};

const ROUNDS: usize = 5;
const LOOKUPS: usize = 1_000_000;

fn key(n: u32) -> FlowKey {
    let remote = Ipv4Addr::from(0xc612_0000 + n / 50_000);
    FlowKey::new(6, (Ipv4Addr::new(198, 19, 0, 2), 80).into(), (remote, 10_000 + (n % 50_000) as u16).into())
}

fn median_ns(mut run: impl FnMut()) -> f64 {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[ROUNDS / 2].as_nanos() as f64 / LOOKUPS as f64
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:>9} {:>12} {:>12} {:>12} {:>12}", "flows", "hit ns", "burst hit ns", "miss ns", "churn ns");
    for flows in [1u32, 1_000, 100_000, 1_000_000] {
        let memory = HeapMemory::new(tcp_table_bytes(flows + 1));
        format_tcp_table(memory.region(), flows + 1, *b"0123456789abcdef")?;
        let mut writer = TcpTableWriter::open(memory.region(), Owner { epoch: 1, pid: 1 })?;
        for n in 0..flows {
            writer.insert(&key(n), FlowRef(n))?;
        }
        // In an order that no cache foresees.
        let step = |at: u32| at.wrapping_mul(2_654_435_761).wrapping_add(12_345);
        let mut keys = Vec::with_capacity(LOOKUPS);
        let mut at = 1u32;
        for _ in 0..LOOKUPS {
            at = step(at);
            keys.push(key(at % flows));
        }
        let strangers: Vec<_> = (0..LOOKUPS as u32).map(|n| key(2_000_000 + n)).collect();
        let hit = median_ns(|| {
            for key in &keys {
                black_box(writer.lookup(key));
            }
        });
        let reader = writer.reader();
        let mut found = [None; 32];
        let burst = median_ns(|| {
            for keys in keys.chunks(32) {
                reader.lookup_burst(keys, &mut found);
                black_box(&found);
            }
        });
        let miss = median_ns(|| {
            for key in &strangers {
                black_box(writer.lookup(key));
            }
        });
        let churn = median_ns(|| {
            for key in &strangers {
                let _ = writer.insert(key, FlowRef(7));
                writer.remove(key);
            }
        });
        println!("{flows:>9} {hit:>12.1} {burst:>12.1} {miss:>12.1} {churn:>12.1}");
    }
    Ok(())
}
