/* folder.h - the folder that the nodes of a job share: key, sockets, lock, record of ended nodes. */
#pragma once

#include "cli/launch/job.h"

/* Remove folders that killed launchers of this user left behind, then make the folder of `job`, lock it and
 * write the key file. Sets name, folder and key. Errors: those of launch_nodes. */
int launch_folder_open(struct launch_job *job);
/* Remove the folder and release the lock; also for a job that has no folder. */
void launch_folder_close(struct launch_job *job);
/* Remove a folder with all that is in it. */
void launch_folder_remove(const char *folder);
/* Append a line to the record of ended nodes (bootstrap/roster/ended.h). */
void launch_folder_note_end(const struct launch_job *job, const char *line);
