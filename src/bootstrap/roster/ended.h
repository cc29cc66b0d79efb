/* ended.h - the launcher's record of nodes whose process has ended, in the folder of the job.
 *
 * A node that ends before it joins has no connection, so its peers would wait until their join timeout.
 * When a process ends, the launcher appends a line "RANK STATUS" to the file `ended` of REMO_JOB_DIR, whether
 * the process had joined or not. STATUS is 128 plus the signal if a signal ended the process. On another host
 * the shell that started rank R appends the lines to the file `R.ended`. The joining nodes read the files.
 */
#pragma once

#include <stdbool.h>

#include "bootstrap/roster/roster.h"

#define REMO__ENDED_FILE "ended"
#define REMO__ENDED_LINE_BYTES_MAX 24u /* of one record, with its line end */
#define REMO__ENDED_BYTES_MAX (REMO__NODES_MAX * REMO__ENDED_LINE_BYTES_MAX)

/* Read the file for this node into `text`. Returns the bytes read: 0 without a launcher or a file, or if this
 * node was restarted by hand (then ended peers may have been restarted too). */
size_t remo__ended_read(const struct remo__roster *roster, char text[REMO__ENDED_BYTES_MAX]);
/* Take the next record from the file's content and advance `*at`. Records are in the order in which the
 * processes ended. Malformed lines are skipped. False at the end. */
bool remo__ended_next(const char **at, const char *end, uint32_t *ret_rank, uint32_t *ret_status);
