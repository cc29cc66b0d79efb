/* report.c - the output of the demo at its start and at its end.
 * Widths are those of a terminal of 80 columns or more. */
#include <stdio.h>
#include <string.h>

#include "cli/demo/demo.h"

/* Format a count: "1,234,567". */
static const char *format_count(double count, char text[32]) {
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%.0f", count);
    char *to = text;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return text;
}

static const char *format_ns(double ns, char text[32]) {
    if (ns < 1e3)
        snprintf(text, 32, "%.0f ns", ns);
    else if (ns < 1e6)
        snprintf(text, 32, "%.*f us", ns < 1e5 ? 1 : 0, ns / 1e3);
    else
        snprintf(text, 32, "%.*f ms", ns < 1e8 ? 1 : 0, ns / 1e6);
    return text;
}

static const char *format_bytes(double bytes, char text[32]) {
    if (bytes < 1024)
        snprintf(text, 32, "%.0f B", bytes);
    else if (bytes < 1024 * 1024)
        snprintf(text, 32, "%.1f KiB", bytes / 1024);
    else
        snprintf(text, 32, "%.1f MiB", bytes / (1024 * 1024));
    return text;
}

void demo_report_start(const struct demo_options *options, const struct demo_records *records) {
    char count[32], bytes[32], longest[32];
    printf("%u nodes on this machine, over %s\n", options->nodes, options->fabric);
    printf("data       %s %s of %s: %s, the longest %s\n", format_count(records->count, count),
           records->packages ? "packages" : "records", options->file,
           format_bytes((double)records->bytes, bytes), format_bytes(records->value_bytes_max, longest));
    if (records->repeated > 0)
        printf("           %u more are left out: their keys are repeated\n", records->repeated);
    fflush(stdout);
}

static void print_row(const char *name, const struct remo__histogram *histogram, double seconds,
                      const struct demo_cost *cost, const struct demo_limit *limit) {
    char text[5][32];
    format_count((double)remo__histogram_count(histogram) / seconds, text[0]);
    format_ns((double)remo__histogram_percentile(histogram, 50), text[1]);
    format_ns((double)remo__histogram_percentile(histogram, 99), text[2]);
    format_ns((double)remo__histogram_percentile(histogram, 99.9), text[3]);
    printf("%-7s %12s %9s %9s %9s %7.2f %7.2f %8.2f %6.2f", name, text[0], text[1], text[2], text[3],
           cost->reads, cost->writes, cost->atomics, cost->wakes);
    if (limit->ns > 0)
        printf("  %8s  %s\n", format_ns(limit->ns, text[4]), limit->what);
    else
        printf("  %8s\n", "-");
}

void demo_report_table(const struct demo_results *sum, const struct demo_cost costs[DEMO_KINDS],
                       const struct demo_limit limits[DEMO_KINDS]) {
    static const char *const names[DEMO_KINDS] = {"get", "update", "insert", "delete"};
    char count[32], rate[32];
    printf("loaded     %s records in %.2f s (%s a second), each node a share\n",
           format_count((double)sum->loaded, count), sum->load_seconds,
           format_count((double)sum->loaded / sum->load_seconds, rate));
    printf("worked     %.1f s: every node read, updated, inserted and deleted\n", sum->work_seconds);
    printf("read back  %s records in %.2f s, each on a node that had neither loaded nor changed it:\n"
           "           all equal to their last values, byte for byte\n\n",
           format_count((double)sum->checked, count), sum->check_seconds);
    printf("%-7s %12s %9s %9s %9s %7s %7s %8s %6s  %8s\n", "", "per second", "p50", "p99", "p99.9", "reads",
           "writes", "atomics", "wakes", "limit");
    for (uint32_t kind = 0; kind < DEMO_KINDS; kind++)
        print_row(names[kind], &sum->histograms[kind], sum->work_seconds, &costs[kind], &limits[kind]);
    printf("\nper second: all nodes together, in this mixture. Reads, writes, atomics: network\n"
           "operations per operation, of all nodes; wakes: writes that also wake a node.\n"
           "Limit: time of this machine for the same work without a library.\n");
    fflush(stdout);
}
