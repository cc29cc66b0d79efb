/* symbols.h - the functions of libibverbs and librdmacm that Remo uses, also through inline functions
 * of their headers. */
#pragma once

#define REMO__VERBS_SYMBOLS(CALL, LOAD)                                                                      \
    CALL(void, ibv_ack_cq_events, (struct ibv_cq * cq, unsigned int nevents), (cq, nevents))                 \
    CALL(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context * context), (context))                           \
    CALL(int, ibv_close_device, (struct ibv_context * context), (context))                                   \
    CALL(struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context * context), (context))      \
    CALL(struct ibv_cq *, ibv_create_cq,                                                                     \
         (struct ibv_context * context, int cqe, void *cq_context, struct ibv_comp_channel *channel,         \
          int comp_vector),                                                                                  \
         (context, cqe, cq_context, channel, comp_vector))                                                   \
    CALL(struct ibv_qp *, ibv_create_qp, (struct ibv_pd * pd, struct ibv_qp_init_attr * qp_init_attr),       \
         (pd, qp_init_attr))                                                                                 \
    CALL(struct ibv_srq *, ibv_create_srq, (struct ibv_pd * pd, struct ibv_srq_init_attr * srq_init_attr),   \
         (pd, srq_init_attr))                                                                                \
    CALL(int, ibv_dealloc_pd, (struct ibv_pd * pd), (pd))                                                    \
    CALL(int, ibv_dereg_mr, (struct ibv_mr * mr), (mr))                                                      \
    CALL(int, ibv_destroy_comp_channel, (struct ibv_comp_channel * channel), (channel))                      \
    CALL(int, ibv_destroy_cq, (struct ibv_cq * cq), (cq))                                                    \
    CALL(int, ibv_destroy_qp, (struct ibv_qp * qp), (qp))                                                    \
    CALL(int, ibv_destroy_srq, (struct ibv_srq * srq), (srq))                                                \
    CALL(void, ibv_free_device_list, (struct ibv_device * *list), (list))                                    \
    CALL(int, ibv_get_cq_event, (struct ibv_comp_channel * channel, struct ibv_cq * *cq, void **cq_context), \
         (channel, cq, cq_context))                                                                          \
    LOAD(struct ibv_device **, ibv_get_device_list, (int *num_devices), (num_devices))                       \
    CALL(const char *, ibv_get_device_name, (struct ibv_device * device), (device))                          \
    CALL(int, ibv_modify_qp, (struct ibv_qp * qp, struct ibv_qp_attr * attr, int attr_mask),                 \
         (qp, attr, attr_mask))                                                                              \
    CALL(struct ibv_context *, ibv_open_device, (struct ibv_device * device), (device))                      \
    CALL(const char *, ibv_port_state_str, (enum ibv_port_state port_state), (port_state))                   \
    CALL(struct ibv_qp_ex *, ibv_qp_to_qp_ex, (struct ibv_qp * qp), (qp))                                    \
    CALL(int, ibv_query_device, (struct ibv_context * context, struct ibv_device_attr * device_attr),        \
         (context, device_attr))                                                                             \
    CALL(int, _ibv_query_gid_ex,                                                                             \
         (struct ibv_context * context, uint32_t port_num, uint32_t gid_index, struct ibv_gid_entry * entry, \
          uint32_t flags, size_t entry_size),                                                                \
         (context, port_num, gid_index, entry, flags, entry_size))                                           \
    CALL(int, ibv_query_port,                                                                                \
         (struct ibv_context * context, uint8_t port_num, struct _compat_ibv_port_attr * port_attr),         \
         (context, port_num, port_attr))                                                                     \
    CALL(struct ibv_mr *, ibv_reg_mr_iova,                                                                   \
         (struct ibv_pd * pd, void *addr, size_t length, uint64_t iova, int access),                         \
         (pd, addr, length, iova, access))                                                                   \
    CALL(struct ibv_mr *, ibv_reg_mr_iova2,                                                                  \
         (struct ibv_pd * pd, void *addr, size_t length, uint64_t iova, unsigned int access),                \
         (pd, addr, length, iova, access))                                                                   \
    CALL(const char *, ibv_wc_status_str, (enum ibv_wc_status status), (status))

#define REMO__RDMACM_SYMBOLS(CALL, LOAD)                                                                     \
    CALL(int, rdma_accept, (struct rdma_cm_id * id, struct rdma_conn_param * conn_param), (id, conn_param))  \
    CALL(int, rdma_ack_cm_event, (struct rdma_cm_event * event), (event))                                    \
    CALL(int, rdma_bind_addr, (struct rdma_cm_id * id, struct sockaddr * addr), (id, addr))                  \
    CALL(int, rdma_connect, (struct rdma_cm_id * id, struct rdma_conn_param * conn_param), (id, conn_param)) \
    LOAD(struct rdma_event_channel *, rdma_create_event_channel, (void), ())                                 \
    CALL(int, rdma_create_id,                                                                                \
         (struct rdma_event_channel * channel, struct rdma_cm_id * *id, void *context,                       \
          enum rdma_port_space ps),                                                                          \
         (channel, id, context, ps))                                                                         \
    CALL(void, rdma_destroy_event_channel, (struct rdma_event_channel * channel), (channel))                 \
    CALL(int, rdma_destroy_id, (struct rdma_cm_id * id), (id))                                               \
    CALL(int, rdma_disconnect, (struct rdma_cm_id * id), (id))                                               \
    CALL(int, rdma_establish, (struct rdma_cm_id * id), (id))                                                \
    CALL(const char *, rdma_event_str, (enum rdma_cm_event_type event), (event))                             \
    CALL(int, rdma_get_cm_event, (struct rdma_event_channel * channel, struct rdma_cm_event * *event),       \
         (channel, event))                                                                                   \
    CALL(__be16, rdma_get_src_port, (struct rdma_cm_id * id), (id))                                          \
    CALL(int, rdma_init_qp_attr, (struct rdma_cm_id * id, struct ibv_qp_attr * qp_attr, int *qp_attr_mask),  \
         (id, qp_attr, qp_attr_mask))                                                                        \
    CALL(int, rdma_listen, (struct rdma_cm_id * id, int backlog), (id, backlog))                             \
    CALL(int, rdma_reject, (struct rdma_cm_id * id, const void *private_data, uint8_t private_data_len),     \
         (id, private_data, private_data_len))                                                               \
    CALL(int, rdma_resolve_addr,                                                                             \
         (struct rdma_cm_id * id, struct sockaddr * src_addr, struct sockaddr * dst_addr, int timeout_ms),   \
         (id, src_addr, dst_addr, timeout_ms))                                                               \
    CALL(int, rdma_resolve_route, (struct rdma_cm_id * id, int timeout_ms), (id, timeout_ms))
