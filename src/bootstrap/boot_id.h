/* boot_id.h - an id of this machine and its current boot. */
#pragma once

#include <stdint.h>

#define REMO__BOOT_ID_BYTES 16u
#define REMO__BOOT_ID_TEXT_BYTES (2u * REMO__BOOT_ID_BYTES + 1u)

/* Random where the kernel reports no id: every process then counts as a separate machine, slow but safe. */
void remo__boot_id(uint8_t ret_id[REMO__BOOT_ID_BYTES]);
void remo__boot_id_text(char ret_text[REMO__BOOT_ID_TEXT_BYTES]);
