/* What ff-dpdk needs of DPDK and cannot get as an exported symbol: static inline functions, thread-local
 * variables, and structures whose layout changes between releases. */
#ifndef FF_DPDK_WRAPPER_H
#define FF_DPDK_WRAPPER_H

#include <stddef.h>
#include <stdint.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_mempool.h>
#include <rte_memzone.h>
#include <rte_ring.h>
#include <rte_service_component.h>
#include <rte_version.h>

/* Offsets of mbuf fields: stable names for fields that move between releases. */
enum ff_mbuf_offset {
	FF_MBUF_BUF_ADDR = offsetof(struct rte_mbuf, buf_addr),
	FF_MBUF_DATA_OFF = offsetof(struct rte_mbuf, data_off),
	FF_MBUF_REFCNT = offsetof(struct rte_mbuf, refcnt),
	FF_MBUF_NB_SEGS = offsetof(struct rte_mbuf, nb_segs),
	FF_MBUF_OL_FLAGS = offsetof(struct rte_mbuf, ol_flags),
	FF_MBUF_PKT_LEN = offsetof(struct rte_mbuf, pkt_len),
	FF_MBUF_DATA_LEN = offsetof(struct rte_mbuf, data_len),
	FF_MBUF_BUF_LEN = offsetof(struct rte_mbuf, buf_len),
	FF_MBUF_POOL = offsetof(struct rte_mbuf, pool),
	FF_MBUF_NEXT = offsetof(struct rte_mbuf, next),
	FF_MBUF_TX_OFFLOAD = offsetof(struct rte_mbuf, tx_offload),
};

static const uint64_t FF_RX_L4_CKSUM_MASK = RTE_MBUF_F_RX_L4_CKSUM_MASK;
static const uint64_t FF_RX_L4_CKSUM_BAD = RTE_MBUF_F_RX_L4_CKSUM_BAD;
static const uint64_t FF_RX_L4_CKSUM_GOOD = RTE_MBUF_F_RX_L4_CKSUM_GOOD;
static const uint64_t FF_RX_IP_CKSUM_MASK = RTE_MBUF_F_RX_IP_CKSUM_MASK;
static const uint64_t FF_RX_IP_CKSUM_BAD = RTE_MBUF_F_RX_IP_CKSUM_BAD;
static const uint64_t FF_RX_IP_CKSUM_GOOD = RTE_MBUF_F_RX_IP_CKSUM_GOOD;
static const uint64_t FF_TX_IP_CKSUM = RTE_MBUF_F_TX_IP_CKSUM;
static const uint64_t FF_TX_TCP_CKSUM = RTE_MBUF_F_TX_TCP_CKSUM;
static const uint64_t FF_TX_TCP_SEG = RTE_MBUF_F_TX_TCP_SEG;
static const uint64_t FF_TX_IPV4 = RTE_MBUF_F_TX_IPV4;
static const uint64_t FF_TX_IPV6 = RTE_MBUF_F_TX_IPV6;

static const uint64_t FF_MBUF_NOT_DIRECT = RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL;

static const uint64_t FF_RX_OFFLOAD_IPV4_CKSUM = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
static const uint64_t FF_RX_OFFLOAD_UDP_CKSUM = RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
static const uint64_t FF_RX_OFFLOAD_TCP_CKSUM = RTE_ETH_RX_OFFLOAD_TCP_CKSUM;
static const uint64_t FF_RX_OFFLOAD_SCATTER = RTE_ETH_RX_OFFLOAD_SCATTER;
static const uint64_t FF_TX_OFFLOAD_IPV4_CKSUM = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
static const uint64_t FF_TX_OFFLOAD_TCP_CKSUM = RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
static const uint64_t FF_TX_OFFLOAD_TCP_TSO = RTE_ETH_TX_OFFLOAD_TCP_TSO;
static const uint64_t FF_TX_OFFLOAD_MULTI_SEGS = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;

static const uint64_t FF_RSS_TCP_UDP = RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP;

static const uint32_t FF_RING_F_SP_ENQ = RING_F_SP_ENQ;
static const uint32_t FF_RING_F_SC_DEQ = RING_F_SC_DEQ;

/* The part of rte_eth_dev_info that is used. */
struct ff_eth_info {
	char driver[32];
	uint64_t rx_offloads;
	uint64_t tx_offloads;
	uint64_t rss_hash_functions;
	uint16_t rx_queues_max;
	uint16_t tx_queues_max;
	uint16_t rx_queues;
	uint16_t tx_queues;
	uint16_t mtu_max;
	uint16_t mtu_min;
	uint16_t reta_size;
	uint16_t rx_desc_max;
	uint16_t tx_desc_max;
	uint16_t tx_segments_max;
};

struct ff_eth_config {
	uint64_t rx_offloads;
	uint64_t tx_offloads;
	uint64_t rss_hash_functions;
	uint32_t mtu;
	uint16_t rx_queues;
	uint16_t tx_queues;
};

struct ff_eth_link {
	uint32_t speed_mbps;
	uint8_t up;
	uint8_t full_duplex;
};

int ff_errno(void);
uint32_t ff_lcore_id(void);

/* An mbuf out of its pool becomes an empty packet. */
void ff_mbuf_make_empty(struct rte_mbuf *mbuf);
void ff_mbuf_free(struct rte_mbuf *mbuf);
int ff_mbuf_linearize(struct rte_mbuf *mbuf);
void ff_mbuf_set_tx_offload(struct rte_mbuf *mbuf, uint64_t flags, uint16_t l2_len, uint16_t l3_len,
	uint16_t l4_len, uint16_t tso_bytes);

uint16_t ff_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
uint16_t ff_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
int ff_eth_info(uint16_t port, struct ff_eth_info *info);
int ff_eth_configure(uint16_t port, const struct ff_eth_config *config);
int ff_eth_link(uint16_t port, struct ff_eth_link *link);

unsigned int ff_ring_sp_enqueue_burst(struct rte_ring *ring, void *const *objects, unsigned int count);
unsigned int ff_ring_sp_enqueue_bulk(struct rte_ring *ring, void *const *objects, unsigned int count);
/* A dequeue in two steps: the objects are copied, and stay the ring's until they are released. Exactly the
 * count that the first step returned must be released. */
unsigned int ff_ring_sc_dequeue_start(struct rte_ring *ring, void **objects, unsigned int count);
void ff_ring_sc_dequeue_finish(struct rte_ring *ring, unsigned int count);
unsigned int ff_ring_count(const struct rte_ring *ring);
unsigned int ff_ring_capacity(const struct rte_ring *ring);
int ff_ring_is_spsc(const struct rte_ring *ring);
/* Copies up to `count` of the objects on the ring without taking them; nobody may consume meanwhile, or what
 * is copied may have left the ring. */
unsigned int ff_ring_peek(const struct rte_ring *ring, void **objects, unsigned int count);
void ff_ring_repair_producer(struct rte_ring *ring);
void ff_ring_repair_consumer(struct rte_ring *ring);

int ff_mempool_get_bulk(struct rte_mempool *pool, void **objects, unsigned int count);
void ff_mempool_put_bulk(struct rte_mempool *pool, void *const *objects, unsigned int count);
const char *ff_mempool_name(const struct rte_mempool *pool);
const char *ff_mempool_ops_name(const struct rte_mempool *pool);
uint32_t ff_mempool_size(const struct rte_mempool *pool);
uint32_t ff_mempool_cache_size(const struct rte_mempool *pool);
uint16_t ff_mempool_data_room(struct rte_mempool *pool);
/* Whatever an object of the pool was, it becomes as it was when the pool was made. */
void ff_mbuf_reset(struct rte_mempool *pool, struct rte_mbuf *mbuf);
/* Forgets what the pool holds: stack and per-lcore caches are empty afterwards. 0, or -1 when the pool is
 * not on a lock-free stack. */
int ff_mempool_clear(struct rte_mempool *pool);

#endif
