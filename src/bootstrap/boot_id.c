/* boot_id.c - implements boot_id.h: reads the kernel's boot id.
 * Equal ids mean one machine and one boot; without the kernel's id a random id never matches another. */
#include "bootstrap/boot_id.h"

#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>

void remo__boot_id(uint8_t ret_id[REMO__BOOT_ID_BYTES]) {
    char text[64];
    size_t got = 0;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, text, sizeof text) : -1;
    if (fd >= 0)
        close(fd);
    if (bytes <= 0 || sodium_hex2bin(ret_id, REMO__BOOT_ID_BYTES, text, (size_t)bytes, "-\n", &got, NULL) != 0
        || got != REMO__BOOT_ID_BYTES)
        randombytes_buf(ret_id, REMO__BOOT_ID_BYTES);
}

void remo__boot_id_text(char ret_text[REMO__BOOT_ID_TEXT_BYTES]) {
    uint8_t id[REMO__BOOT_ID_BYTES];
    remo__boot_id(id);
    sodium_bin2hex(ret_text, REMO__BOOT_ID_TEXT_BYTES, id, sizeof id);
}
