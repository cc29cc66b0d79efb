/* boot_id.h - which machine this is, and since which start of it. */
#pragma once

#include <stdint.h>

#define REMO__BOOT_ID_BYTES 16u
#define REMO__BOOT_ID_TEXT_BYTES (2u * REMO__BOOT_ID_BYTES + 1u)

/* Random where the kernel does not tell: then every process takes itself for a machine of its own, which is
 * slow but safe. */
void remo__boot_id(uint8_t ret_id[REMO__BOOT_ID_BYTES]);
void remo__boot_id_text(char ret_text[REMO__BOOT_ID_TEXT_BYTES]);
