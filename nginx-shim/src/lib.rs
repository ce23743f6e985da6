//! libff_nginx.so: stock nginx on the data plane by preloading.
