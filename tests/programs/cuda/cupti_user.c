/* A library that is linked to CUPTI. */
int cuptiSubscribe(void **subscriber, void *callback, void *data);
__attribute__((visibility("default"))) int user_subscribe(void **subscriber, void *callback, void *data) { return cuptiSubscribe(subscriber, callback, data); }
