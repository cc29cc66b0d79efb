/* commands.h - the commands of `remo`. Each takes its own arguments, with argv[0] "remo NAME", and
 * returns the exit status. */
#pragma once

int cli_run(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_demo(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_sim(int argc, char **argv);
