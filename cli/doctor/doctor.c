/* doctor.c - `remo doctor`: runs the checks of this machine, and prints the verdict.
 * The checks are in machine.c, network.c and verbs.c. */
#include "cli/doctor/doctor.h"

#include <argp.h>
#include <stdio.h>

#include "cli/commands.h"

static error_t parse_option(int key, char *text, struct argp_state *state) {
    struct doctor *doctor = state->input;
    switch (key) {
    case 'j': doctor->json = true; break;
    case 'v': doctor->verbs = true; break;
    case ARGP_KEY_ARG: argp_error(state, "'%s' is not an option", text); break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int cli_doctor(int argc, char **argv) {
    static const struct argp_option option_list[] = {
        {"json", 'j', 0, 0, "one JSON object a line: check, state, finding, remedy", 0},
        {"verbs", 'v', 0, 0, "report on the RDMA devices too, with all their limits", 0},
        {0},
    };
    static const struct argp parser = {
        option_list,
        parse_option,
        NULL,
        "Report what this machine offers to Remo, one finding a line, with a remedy where a change helps."
        "\vThe first word of a line is the state: ok; note: information; change: Remo works, and works "
        "better "
        "with the remedy; bad: Remo does not work. The exit status is 1 if a finding is bad, else 0.",
        NULL,
        NULL,
        NULL};
    struct doctor doctor = {0};
    argp_err_exit_status = 2;
    if (argp_parse(&parser, argc, argv, 0, NULL, &doctor))
        return 2;
    doctor_check_machine(&doctor);
    doctor_check_network(&doctor);
    if (doctor.verbs)
        doctor_check_verbs(&doctor);
    if (!doctor.json)
        printf("\n%s%s\n",
               doctor.bad ? "Remo cannot work here before what is bad is changed." : "Remo works here.",
               doctor.changes && !doctor.bad ? " It would work better with what is under change." : "");
    return doctor.bad ? 1 : 0;
}
