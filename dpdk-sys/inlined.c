/* Bodies for wrapper.h: each function is one inline of DPDK, or fills a structure of ours from one of
 * DPDK's. Nothing here decides anything. */
#include "wrapper.h"

#include <string.h>

#include <rte_ring_peek.h>
#include <rte_stack.h>

int ff_errno(void)
{
	return rte_errno;
}

uint32_t ff_lcore_id(void)
{
	return rte_lcore_id();
}

/* ---- mbuf ---- */

void ff_mbuf_make_empty(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_reset(mbuf);
}

void ff_mbuf_free(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

int ff_mbuf_linearize(struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_linearize(mbuf);
}

void ff_mbuf_set_tx_offload(struct rte_mbuf *mbuf, uint64_t flags, uint16_t l2_len, uint16_t l3_len,
	uint16_t l4_len, uint16_t tso_bytes)
{
	mbuf->ol_flags |= flags;
	mbuf->tx_offload = rte_mbuf_tx_offload(l2_len, l3_len, l4_len, tso_bytes, 0, 0, 0);
}

/* ---- ethdev ---- */

uint16_t ff_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, mbufs, count);
}

uint16_t ff_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

int ff_eth_info(uint16_t port, struct ff_eth_info *info)
{
	struct rte_eth_dev_info device;
	int error = rte_eth_dev_info_get(port, &device);

	if (error != 0)
		return error;
	memset(info, 0, sizeof(*info));
	if (device.driver_name != NULL)
		strncpy(info->driver, device.driver_name, sizeof(info->driver) - 1);
	info->rx_offloads = device.rx_offload_capa;
	info->tx_offloads = device.tx_offload_capa;
	info->rss_hash_functions = device.flow_type_rss_offloads;
	info->rx_queues_max = device.max_rx_queues;
	info->tx_queues_max = device.max_tx_queues;
	info->rx_queues = device.nb_rx_queues;
	info->tx_queues = device.nb_tx_queues;
	info->mtu_max = device.max_mtu;
	info->mtu_min = device.min_mtu;
	info->reta_size = device.reta_size;
	info->rx_desc_max = device.rx_desc_lim.nb_max;
	info->tx_desc_max = device.tx_desc_lim.nb_max;
	info->tx_segments_max = device.tx_desc_lim.nb_seg_max;
	return 0;
}

int ff_eth_configure(uint16_t port, const struct ff_eth_config *config)
{
	struct rte_eth_conf conf;

	memset(&conf, 0, sizeof(conf));
	conf.rxmode.offloads = config->rx_offloads;
	conf.rxmode.mtu = config->mtu;
	conf.txmode.offloads = config->tx_offloads;
	if (config->rx_queues > 1 && config->rss_hash_functions != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = config->rss_hash_functions;
	}
	return rte_eth_dev_configure(port, config->rx_queues, config->tx_queues, &conf);
}

int ff_eth_link(uint16_t port, struct ff_eth_link *link)
{
	struct rte_eth_link state;
	int error = rte_eth_link_get_nowait(port, &state);

	if (error != 0)
		return error;
	link->speed_mbps = state.link_speed;
	link->up = state.link_status == RTE_ETH_LINK_UP;
	link->full_duplex = state.link_duplex == RTE_ETH_LINK_FULL_DUPLEX;
	return 0;
}

/* ---- ring ---- */

unsigned int ff_ring_sp_enqueue_burst(struct rte_ring *ring, void *const *objects, unsigned int count)
{
	return rte_ring_sp_enqueue_burst(ring, objects, count, NULL);
}

unsigned int ff_ring_sp_enqueue_bulk(struct rte_ring *ring, void *const *objects, unsigned int count)
{
	return rte_ring_sp_enqueue_bulk(ring, objects, count, NULL);
}

unsigned int ff_ring_sc_dequeue_start(struct rte_ring *ring, void **objects, unsigned int count)
{
	return rte_ring_dequeue_burst_start(ring, objects, count, NULL);
}

void ff_ring_sc_dequeue_finish(struct rte_ring *ring, unsigned int count)
{
	rte_ring_dequeue_finish(ring, count);
}

unsigned int ff_ring_count(const struct rte_ring *ring)
{
	return rte_ring_count(ring);
}

unsigned int ff_ring_capacity(const struct rte_ring *ring)
{
	return rte_ring_get_capacity(ring);
}

int ff_ring_is_spsc(const struct rte_ring *ring)
{
	return rte_ring_is_prod_single(ring) && rte_ring_is_cons_single(ring);
}

unsigned int ff_ring_peek(const struct rte_ring *ring, void **objects, unsigned int count)
{
	void *const *slots = (void *const *)&ring[1];
	uint32_t from = __atomic_load_n(&ring->cons.tail, __ATOMIC_ACQUIRE);
	uint32_t to = __atomic_load_n(&ring->prod.tail, __ATOMIC_ACQUIRE);
	unsigned int copied = 0;

	for (; from != to && copied < count; from++)
		objects[copied++] = slots[from & ring->mask];
	return copied;
}

/* A producer that dies between claiming slots (head) and publishing them (tail) leaves head ahead. The next
 * producer would publish those unwritten slots with its own; so its first act is to give them back. */
void ff_ring_repair_producer(struct rte_ring *ring)
{
	ring->prod.head = ring->prod.tail;
}

/* A consumer that dies between claiming objects and releasing their slots leaves head ahead; it has not
 * seen the call return, so the objects are still the ring's. */
void ff_ring_repair_consumer(struct rte_ring *ring)
{
	ring->cons.head = ring->cons.tail;
}

/* ---- mempool ---- */

int ff_mempool_get_bulk(struct rte_mempool *pool, void **objects, unsigned int count)
{
	return rte_mempool_get_bulk(pool, objects, count);
}

void ff_mempool_put_bulk(struct rte_mempool *pool, void *const *objects, unsigned int count)
{
	rte_mempool_put_bulk(pool, objects, count);
}

const char *ff_mempool_name(const struct rte_mempool *pool)
{
	return pool->name;
}

const char *ff_mempool_ops_name(const struct rte_mempool *pool)
{
	return rte_mempool_get_ops(pool->ops_index)->name;
}

uint32_t ff_mempool_size(const struct rte_mempool *pool)
{
	return pool->populated_size;
}

uint32_t ff_mempool_cache_size(const struct rte_mempool *pool)
{
	return pool->cache_size;
}

uint16_t ff_mempool_data_room(struct rte_mempool *pool)
{
	return rte_pktmbuf_data_room_size(pool);
}

void ff_mbuf_reset(struct rte_mempool *pool, struct rte_mbuf *mbuf)
{
	rte_pktmbuf_init(pool, NULL, mbuf, 0);
}

int ff_mempool_clear(struct rte_mempool *pool)
{
	struct rte_stack *stack = pool->pool_data;
	unsigned int i;

	if (strcmp(ff_mempool_ops_name(pool), "lf_stack") != 0 || !(stack->flags & RTE_STACK_F_LF))
		return -1;
	stack->stack_lf.used.head.top = NULL;
	stack->stack_lf.used.head.cnt++;
	stack->stack_lf.used.len = 0;
	stack->stack_lf.free.head.top = NULL;
	stack->stack_lf.free.head.cnt++;
	stack->stack_lf.free.len = 0;
	for (i = 0; i < stack->capacity; i++)
		__rte_stack_lf_push_elems(&stack->stack_lf.free, &stack->stack_lf.elems[i],
			&stack->stack_lf.elems[i], 1);
	if (pool->cache_size != 0)
		for (i = 0; i < RTE_MAX_LCORE; i++)
			pool->local_cache[i].len = 0;
	return 0;
}
