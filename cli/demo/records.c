/* records.c - the data of the demo: package records, or lines of key<TAB>value.
 * Records are sorted by key; of repeated keys the first is kept. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/demo/demo.h"

#define TEXT_BYTES_MAX (1u << 30)
#define KEY_BYTES_MAX 1024u
#define VALUE_BYTES_MAX ((1u << 24) - 1 - DEMO_UPDATE_BYTES)

/* ---- reading ---- */

static int read_all(FILE *file, const char *name, char **ret_text, size_t *ret_bytes) {
    size_t room = 1u << 20, bytes = 0;
    char *text = malloc(room);
    while (text && bytes < TEXT_BYTES_MAX) {
        size_t got = fread(text + bytes, 1, room - 1 - bytes, file);
        bytes += got;
        if (got == 0)
            break;
        if (bytes < room - 1)
            continue;
        char *larger = realloc(text, room *= 2);
        if (!larger)
            free(text);
        text = larger;
    }
    if (!text)
        return remo__fail(-ENOMEM, "no memory for the records of %s", name);
    if (ferror(file) || bytes >= TEXT_BYTES_MAX) {
        free(text);
        return ferror(file) ? remo__fail(-EIO, "cannot read %s", name)
                            : remo__fail(-EMSGSIZE, "%s has more than %u MiB", name, TEXT_BYTES_MAX >> 20);
    }
    text[bytes] = '\0';
    *ret_text = text;
    *ret_bytes = bytes;
    return 0;
}

static int add(struct demo_records *records, uint32_t *room, const struct demo_record *record) {
    if (records->count == *room) {
        uint32_t larger = *room ? *room * 2 : 1024;
        struct demo_record *all = realloc(records->all, larger * sizeof *all);
        if (!all)
            return remo__fail(-ENOMEM, "no memory for %u records", larger);
        records->all = all;
        *room = larger;
    }
    records->all[records->count++] = *record;
    return 0;
}

static int check(const struct demo_record *record, const char *file, uint64_t line) {
    if (record->key_bytes == 0)
        return remo__fail(-EINVAL, "%s:%llu: the key is empty; a line is key<TAB>value", file,
                          (unsigned long long)line);
    if (record->key_bytes > KEY_BYTES_MAX)
        return remo__fail(-EMSGSIZE, "%s:%llu: a key of %u bytes is too long for the demo, at most %u", file,
                          (unsigned long long)line, record->key_bytes, KEY_BYTES_MAX);
    if (record->value_bytes > VALUE_BYTES_MAX)
        return remo__fail(-EMSGSIZE, "%s:%llu: a value of %u bytes is too long, at most %u", file,
                          (unsigned long long)line, record->value_bytes, VALUE_BYTES_MAX);
    return 0;
}

static int parse_lines(struct demo_records *records, const char *file, size_t bytes) {
    const char *at = records->text, *end = at + bytes;
    uint32_t room = 0;
    for (uint64_t number = 1; at < end; number++) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        line_end = line_end ? line_end : end;
        const char *tab = memchr(at, '\t', (size_t)(line_end - at));
        struct demo_record record = {.key = at};
        if (line_end > at) {
            if (!tab)
                return remo__fail(-EINVAL, "%s:%llu: there is no tab; a line is key<TAB>value", file,
                                  (unsigned long long)number);
            record.key_bytes = (uint32_t)(tab - at);
            record.value = tab + 1;
            record.value_bytes = (uint32_t)(line_end - tab - 1);
            int rc = check(&record, file, number);
            rc = rc ? rc : add(records, &room, &record);
            if (rc != 0)
                return rc;
        }
        at = line_end + 1;
    }
    return 0;
}

/* ---- packages ---- */

#define NAME_FIELD "Package: "

/* Return the stanza at `at`, without the empty line behind it. */
static struct demo_record stanza_at(const char *at) {
    const char *end = strstr(at, "\n\n");
    end = end ? end + 1 : at + strlen(at);
    struct demo_record record = {.value = at, .value_bytes = (uint32_t)(end - at)};
    for (const char *line = at; line < end; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : end) {
        if (strncmp(line, NAME_FIELD, strlen(NAME_FIELD)) != 0)
            continue;
        record.key = line + strlen(NAME_FIELD);
        record.key_bytes = (uint32_t)strcspn(record.key, "\n");
        break;
    }
    return record;
}

static int parse_packages(struct demo_records *records, const char *file) {
    const char *at = records->text + strspn(records->text, "\n");
    uint32_t room = 0;
    while (*at) {
        struct demo_record record = stanza_at(at);
        int rc = record.key ? check(&record, file, 1) : 0;
        if (rc == 0 && record.key)
            rc = add(records, &room, &record);
        if (rc != 0)
            return rc;
        at += record.value_bytes;
        at += strspn(at, "\n");
    }
    return 0;
}

/* ---- the whole file ---- */

static int compare_keys(const void *a, const void *b) {
    const struct demo_record *one = a, *other = b;
    uint32_t shorter = one->key_bytes < other->key_bytes ? one->key_bytes : other->key_bytes;
    int order = memcmp(one->key, other->key, shorter);
    if (order == 0)
        order = (one->key_bytes > other->key_bytes) - (one->key_bytes < other->key_bytes);
    return order ? order : (one->key > other->key) - (one->key < other->key);
}

/* Sort by key, and keep the first record of each. */
static void settle(struct demo_records *records) {
    uint32_t kept = 0;
    qsort(records->all, records->count, sizeof records->all[0], compare_keys);
    for (uint32_t i = 0; i < records->count; i++) {
        struct demo_record *record = &records->all[i], *last = kept > 0 ? &records->all[kept - 1] : NULL;
        if (last && last->key_bytes == record->key_bytes
            && memcmp(last->key, record->key, record->key_bytes) == 0)
            continue;
        records->all[kept++] = *record;
        records->bytes += record->key_bytes + record->value_bytes;
        if (record->key_bytes > records->key_bytes_max)
            records->key_bytes_max = record->key_bytes;
        if (record->value_bytes > records->value_bytes_max)
            records->value_bytes_max = record->value_bytes;
    }
    records->repeated = records->count - kept;
    records->count = kept;
}

int demo_records_read(const char *file, struct demo_records *ret_records) {
    struct demo_records records = {0};
    FILE *stream = fopen(file, "re");
    size_t bytes = 0;
    if (!stream)
        return remo__fail(-errno, "cannot read %s: %s; give a file of key<TAB>value lines with --file", file,
                          strerror(errno));
    int rc = read_all(stream, file, &records.text, &bytes);
    fclose(stream);
    if (rc != 0)
        return rc;
    records.packages =
        strncmp(records.text + strspn(records.text, "\n"), NAME_FIELD, strlen(NAME_FIELD)) == 0;
    rc = records.packages ? parse_packages(&records, file) : parse_lines(&records, file, bytes);
    if (rc == 0 && records.count == 0)
        rc = remo__fail(-EINVAL, "%s has no records: neither package stanzas nor lines of key<TAB>value",
                        file);
    if (rc != 0) {
        demo_records_free(&records);
        return rc;
    }
    settle(&records);
    *ret_records = records;
    return 0;
}

void demo_records_free(struct demo_records *records) {
    free(records->all);
    free(records->text);
    *records = (struct demo_records){0};
}

/* ---- values ---- */

#define UPDATE_FORMAT "Remo-Update: %010u\n"

size_t demo_value(const struct demo_record *record, uint32_t version, char *buffer) {
    size_t front = 0;
    if (version > 0) {
        char text[DEMO_UPDATE_BYTES + 1];
        snprintf(text, sizeof text, UPDATE_FORMAT, version);
        memcpy(buffer, text, DEMO_UPDATE_BYTES);
        front = DEMO_UPDATE_BYTES;
    }
    memcpy(buffer + front, record->value, record->value_bytes);
    return front + record->value_bytes;
}

uint32_t demo_version(const struct demo_record *record, const char *value, size_t bytes) {
    if (bytes == record->value_bytes && memcmp(value, record->value, bytes) == 0)
        return 0;
    char text[DEMO_UPDATE_BYTES + 1], again[DEMO_UPDATE_BYTES + 1];
    uint32_t version;
    if (bytes != record->value_bytes + DEMO_UPDATE_BYTES)
        return UINT32_MAX;
    memcpy(text, value, DEMO_UPDATE_BYTES);
    text[DEMO_UPDATE_BYTES] = '\0';
    if (sscanf(text, "Remo-Update: %u", &version) != 1 || version == 0)
        return UINT32_MAX;
    snprintf(again, sizeof again, UPDATE_FORMAT, version);
    bool good = strcmp(text, again) == 0
                && memcmp(value + DEMO_UPDATE_BYTES, record->value, record->value_bytes) == 0;
    return good ? version : UINT32_MAX;
}
