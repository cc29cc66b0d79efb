/* hosts.c - fuzzes text that users write: hosts files, addresses, key files, numbers in the environment.
 * Invariant: accepted text yields valid values. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap/address.h"
#include "bootstrap/roster/hosts.h"
#include "bootstrap/key.h"
#include "fuzz.h"
#include "node/settings.h"

static const char *const seeds[] = {
    "# comment\nnode1:7000\nnode2:7100 slots=4\n"
    "tcp:[fe80::1%eth0]:9 # more\nunix:/run/a/1.sock,tcp:n3:1\n\nn4\r\n",
    "localhost slots=256",
    "a:65535 slots=1\nb:1\tslots=2\n",
    "unix:/a,unix:@b,tcp:127.0.0.1:1,tcp:[::1]:65535",
    "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n",
    "0123456789abcdef0123456789abcdef",
    "18446744073709551615",
    "512M",
    "0.000000001",
};

size_t fuzz_seed(uint32_t n, uint8_t *ret_data) {
    if (n >= sizeof seeds / sizeof seeds[0])
        return 0;
    memcpy(ret_data, seeds[n], strlen(seeds[n]));
    return strlen(seeds[n]);
}

/* Check that accepted hosts are valid. */
static void check_hosts(const char *text, size_t bytes) {
    struct remo__hosts hosts;
    if (remo__hosts_parse("hosts", text, bytes, &hosts) != 0)
        return;
    assert(hosts.count > 0 && hosts.count <= REMO__NODES_MAX);
    for (uint32_t i = 0; i < hosts.count; i++) {
        char address[REMO__ADDRESS_BYTES_MAX];
        remo__host_address(&hosts.entries[i], address);
        assert(remo__address_check(address) == 0);
        assert(hosts.entries[i].host[0] != '-');
    }
    free(hosts.entries);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    uint8_t key[REMO__KEY_BYTES];
    struct remo__form form;
    const char *text = (const char *)data;
    check_hosts(text, bytes);
    remo__key_parse(data, bytes, key);
    remo__host_parse(text, bytes, &form);
    if (remo__form_parse(text, bytes, &form) == 0)
        assert(form.is_unix || form.port > 0);
    char *copy = strndup(text, bytes);
    uint64_t number;
    if (copy) {
        remo__address_check(copy);
        assert(!remo__bytes_parse(copy, &number) || number > 0);
        assert(!remo__seconds_parse(copy, &number) || (number > 0 && number < UINT64_MAX));
    }
    free(copy);
    return 0;
}
