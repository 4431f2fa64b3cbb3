/* Builds Arrow record batches from the records that librdkafka has fetched. No record becomes a Python object.
 *
 * A plain shared library for ctypes, without Python's API. It is not linked to librdkafka, but gets pointers to the functions of
 * the copy that confluent-kafka has loaded (libraries.py). Only one thread may use an intake at a time.
 *
 * There are two passes. `gs_take` consumes messages, keeps those in the range, and adds up their sizes. `gs_batch` copies them
 * into one block of memory of exactly that size, and frees them one by one. It hands over the block as one array of structs,
 * through Arrow's C data interface. For a batch with few records, a Python object per buffer would cost more than the copies.
 *
 * All of an intake's messages belong to one partition: the only one that is assigned, or the one whose queue it reads. So a
 * message's partition is not checked.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_native.h"

#define ERR_BAD_MSG (-199)
#define ERR_NOENT (-156)
#define ERR_LOG_TRUNCATION (-139)

#define EVENT_TEXT 512
/* The maximum number of messages to consume in one call. librdkafka refills its queue in the meantime. */
#define MOST_AT_ONCE 1024
/* How long to wait for each record after a call's first one, in ms, and how many times. This way, one call can fill the batch
 * while records keep arriving: with large records, returning to Python after each response would cost more than the copies. */
#define FLOW_WAIT_MS 5
#define MOST_FLOW_WAITS 100
/* How many bytes a header adds to offsets, bitmap and rounding, in addition to its key and value. */
#define HEADER_OVERHEAD 16
/* Arrow requires 8; 64 is a cache line. */
#define ALIGNMENT 64
/* Kafka's timestamps are in ms, and Spark's in µs. A timestamp above this one, or below its negative, does not fit. The same as
 * LARGEST_TIMESTAMP_MS in fetch/arrow_schema.py. */
#define LARGEST_TIMESTAMP_MS (INT64_MAX / 1000)

/* The columns, as bits in `intake.columns` and as elements of `intake.order`. fetch/native_consumer.py has the same list. */
enum column {
    KEY,
    VALUE,
    TOPIC,
    PARTITION,
    OFFSET,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    HEADERS,
    COLUMNS
};

struct library {
    ptrdiff_t (*consume_batch_queue)(void *queue, int timeout_ms, struct message **into, size_t most);
    void (*message_destroy)(struct message *);
    const char *(*message_errstr)(const struct message *);
    int64_t (*message_timestamp)(const struct message *, int32_t *type);
    int32_t (*message_leader_epoch)(const struct message *);
    int32_t (*message_headers)(const struct message *, void **headers);
    size_t (*header_cnt)(const void *headers);
    int32_t (*header_get_all)(const void *headers, size_t index, const char **key, const void **value, size_t *size);
};

struct intake {
    struct library library;
    void *queue;
    /* Messages [0, rows) are in the batch. [seen, fetched) have been consumed but not taken in yet.
     * rows <= seen <= fetched <= row_limit. */
    struct message **messages;
    int64_t row_limit;
    int64_t byte_limit;
    /* The latest leader epoch that a record in the range can have; -1 if it is unknown. */
    int64_t newest_epoch;
    /* The batch's columns, as a set and in order. */
    int64_t columns;
    int64_t column_count;
    int32_t order[COLUMNS];
    /* Whether `gs_key_size` can be used. If not, a header key ends at its first NUL. */
    int64_t key_sizes;
    /* The topic and the partition, which are the same in every row. */
    const char *topic;
    int64_t topic_size;
    int32_t partition;
    int64_t rows;
    int64_t seen;
    int64_t fetched;
    /* Sums over the rows. */
    int64_t bytes;
    int64_t key_bytes;
    int64_t null_keys;
    int64_t value_bytes;
    int64_t null_values;
    int64_t without_headers;
    int64_t headers;
    int64_t header_key_bytes;
    int64_t header_value_bytes;
    int64_t null_header_values;
    int64_t odd_header_keys; /* not UTF-8 */
    /* The result of one `gs_take` call. */
    int64_t next;
    int64_t first; /* -1: no record */
    int64_t full;
    int64_t event; /* 0: none */
    int64_t event_offset;
    int32_t event_error;
    char event_text[EVENT_TEXT];
};

/* A batch's buffers. */
enum section {
    KEY_VALID,
    KEY_OFFSETS,
    KEY_DATA,
    VALUE_VALID,
    VALUE_OFFSETS,
    VALUE_DATA,
    TOPIC_OFFSETS,
    TOPIC_DATA,
    PARTITIONS,
    OFFSETS,
    TIMESTAMPS,
    TIMESTAMP_TYPES,
    HEADERS_VALID,
    HEADERS_OFFSETS,
    HEADER_KEY_OFFSETS,
    HEADER_KEY_DATA,
    HEADER_VALUE_VALID,
    HEADER_VALUE_OFFSETS,
    HEADER_VALUE_DATA,
    SECTIONS
};

/* struct ArrowArray in Arrow's C data interface, which is stable. */
struct array {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct array **children;
    struct array *dictionary;
    void (*release)(struct array *);
    void *private_data;
};

/* A batch's arrays: one for each column, and three inside the headers. */
enum { HEADER_ELEMENT = COLUMNS, HEADER_KEY, HEADER_VALUE, ARRAYS };

/* The start of a batch's block of memory. The buffers follow. Arrow frees the whole block in one call. */
struct block {
    struct array arrays[ARRAYS];
    const void *buffers[ARRAYS][3];
    struct array *columns[COLUMNS];
    struct array *header_element[1];
    struct array *header_fields[2];
    const void *no_bitmap[1];
};

/* One record's sizes. `headers` is NULL if there are none. */
struct sizes {
    void *headers;
    int64_t count;
    int64_t key_bytes;
    int64_t value_bytes;
    int64_t null_values;
    int64_t odd_keys;
    int64_t total;
};

EXPORT int64_t gs_abi(void) { return GS_ABI; }

EXPORT int64_t gs_size_of_intake(void) { return (int64_t)sizeof(struct intake); }

static int is_utf8(const unsigned char *text, size_t size) {
    size_t at = 0;
    while (at < size) {
        unsigned char lead = text[at++];
        unsigned char low = 0x80, high = 0xBF;
        int more;
        if (lead < 0x80)
            continue;
        if (lead >= 0xC2 && lead <= 0xDF)
            more = 1;
        else if (lead >= 0xE0 && lead <= 0xEF)
            more = 2;
        else if (lead >= 0xF0 && lead <= 0xF4)
            more = 3;
        else
            return 0;
        /* Refuse overlong forms, surrogates, and code points beyond U+10FFFF. */
        if (lead == 0xE0)
            low = 0xA0;
        else if (lead == 0xED)
            high = 0x9F;
        else if (lead == 0xF0)
            low = 0x90;
        else if (lead == 0xF4)
            high = 0x8F;
        for (; more > 0; more--, low = 0x80, high = 0xBF)
            if (at == size || text[at] < low || text[at++] > high)
                return 0;
    }
    return 1;
}

/* Returns the size of a header key, which may contain NULs. librdkafka returns the key as a NUL-terminated string, whose size is
 * in memory before it, in `struct rd_kafka_header_s`: ..., size_t rkhdr_name_size, char *rkhdr_value, char rkhdr_name[]. This
 * struct is not public, so libraries.py tries several headers before this function is used. */
EXPORT int64_t gs_key_size(const char *key) {
    size_t size;
    memcpy(&size, key - sizeof(char *) - sizeof(size), sizeof(size));
    return (int64_t)size;
}

static size_t key_size(const struct intake *in, const char *key) {
    return in->key_sizes ? (size_t)gs_key_size(key) : strlen(key);
}

static int wants(const struct intake *in, enum column column) { return (int)(in->columns >> column & 1); }

/* Returns NO_ERROR, or librdkafka's error for headers that it cannot read. The total includes the key and the value even if no
 * column needs them, because librdkafka keeps them in memory until the message is freed. */
static int32_t measure(const struct intake *in, const struct message *message, struct sizes *sizes) {
    memset(sizes, 0, sizeof(*sizes));
    sizes->total = (int64_t)message->key_size + (int64_t)message->value_size;
    if (!wants(in, HEADERS))
        return NO_ERROR;
    int32_t error = in->library.message_headers(message, &sizes->headers);
    if (error == ERR_NOENT) {
        sizes->headers = NULL;
        return NO_ERROR;
    }
    if (error != NO_ERROR)
        return error;
    sizes->count = (int64_t)in->library.header_cnt(sizes->headers);
    for (int64_t index = 0; index < sizes->count; index++) {
        const char *key;
        const void *value;
        size_t size;
        if (in->library.header_get_all(sizes->headers, (size_t)index, &key, &value, &size) != NO_ERROR)
            return ERR_BAD_MSG;
        size_t of_key = key_size(in, key);
        sizes->key_bytes += (int64_t)of_key;
        sizes->odd_keys += !is_utf8((const unsigned char *)key, of_key);
        if (value == NULL)
            sizes->null_values++;
        else
            sizes->value_bytes += (int64_t)size;
    }
    /* Spark shows null instead of an empty list. */
    if (sizes->count == 0)
        sizes->headers = NULL;
    sizes->total += sizes->key_bytes + sizes->value_bytes + sizes->count * HEADER_OVERHEAD;
    return NO_ERROR;
}

static void drop_seen(struct intake *in) { in->library.message_destroy(in->messages[in->seen++]); }

static void note_event(struct intake *in, int32_t error, const struct message *message) {
    const char *text = "the record's headers cannot be read (librdkafka takes 100,000 at most)";
    if (error == message->err)
        text = in->library.message_errstr(message);
    else if (error == ERR_LOG_TRUNCATION)
        text = "the record has a later leader epoch than the log had when the range was planned";
    in->event = 1;
    in->event_error = error;
    in->event_offset = message->offset;
    in->event_text[0] = '\0';
    if (text != NULL)
        strncat(in->event_text, text, EVENT_TEXT - 1);
}

static void accept(struct intake *in, const struct sizes *sizes) {
    struct message *message = in->messages[in->seen++];
    in->messages[in->rows++] = message;
    in->next = message->offset + 1;
    in->bytes += sizes->total;
    in->key_bytes += message->key == NULL ? 0 : (int64_t)message->key_size;
    in->null_keys += message->key == NULL;
    in->value_bytes += message->value == NULL ? 0 : (int64_t)message->value_size;
    in->null_values += message->value == NULL;
    in->without_headers += sizes->headers == NULL;
    in->headers += sizes->count;
    in->header_key_bytes += sizes->key_bytes;
    in->header_value_bytes += sizes->value_bytes;
    in->null_header_values += sizes->null_values;
    in->odd_header_keys += sizes->odd_keys;
}

/* Drops the messages that have been consumed but not taken in. */
EXPORT void gs_forget_fetched(struct intake *in) {
    while (in->seen < in->fetched)
        drop_seen(in);
    in->seen = in->fetched = in->rows;
}

/* Takes in consumed messages. Returns 1 if the caller must return before consuming more, because the batch is full, an event has
 * arrived, or the range has ended. Nothing after the range's last record counts, not even an error. */
static int take_in(struct intake *in, int64_t end) {
    while (in->seen < in->fetched && in->next < end) {
        struct message *message = in->messages[in->seen];
        struct sizes sizes;
        int32_t error = message->err;
        if (error == NO_ERROR) {
            if (message->offset < in->next) {
                drop_seen(in);
                continue;
            }
            int inside = message->offset < end;
            /* The record belongs to a log that was truncated and has grown again. librdkafka returns -1 for an old format. */
            if (inside && in->newest_epoch >= 0 && in->library.message_leader_epoch(message) > in->newest_epoch) {
                note_event(in, ERR_LOG_TRUNCATION, message);
                drop_seen(in);
                return 1;
            }
            if (in->first < 0)
                in->first = message->offset;
            if (!inside) {
                in->next = end;
                gs_forget_fetched(in);
                return 1;
            }
            error = measure(in, message, &sizes);
        }
        if (error != NO_ERROR) {
            note_event(in, error, message);
            drop_seen(in);
            return 1;
        }
        if (in->rows > 0 && in->bytes + sizes.total > in->byte_limit) {
            in->full = 1;
            return 1;
        }
        accept(in, &sizes);
        if (in->rows == in->row_limit) {
            in->full = 1;
            return 1;
        }
    }
    return 0;
}

/* Returns how many messages to consume in one call, so that those that do not fit in the batch stay in librdkafka's queue. */
static int64_t most_wanted(const struct intake *in, int64_t end) {
    int64_t most = MOST_AT_ONCE;
    if (in->rows > 0) {
        int64_t fitting = (in->byte_limit - in->bytes) / (in->bytes / in->rows + 1) + 1;
        if (fitting < most)
            most = fitting;
    }
    if (in->row_limit - in->rows < most)
        most = in->row_limit - in->rows;
    if (end - in->next < most)
        most = end - in->next;
    return most;
}

/* Takes in the records in [next, end) until the batch is full, an event arrives, or no record has arrived within FLOW_WAIT_MS.
 * Waits up to `timeout_ms` for the first record. With a timeout of 0, it never waits. */
EXPORT void gs_take(struct intake *in, int64_t next, int64_t end, int timeout_ms) {
    in->next = next;
    in->first = -1;
    in->full = 0;
    in->event = 0;
    int waits = 0;
    while (!take_in(in, end)) {
        int64_t wanted = most_wanted(in, end);
        if (wanted <= 0)
            return;
        in->seen = in->fetched = in->rows;
        ptrdiff_t got = in->library.consume_batch_queue(in->queue, 0, in->messages + in->rows, (size_t)wanted);
        if (got <= 0 && timeout_ms > 0 && waits < MOST_FLOW_WAITS) {
            int is_first = waits++ == 0 && in->first < 0;
            int wait_ms = is_first || timeout_ms < FLOW_WAIT_MS ? timeout_ms : FLOW_WAIT_MS;
            /* Ask for only one message, because librdkafka waits until it has as many as it was asked for. */
            got = in->library.consume_batch_queue(in->queue, wait_ms, in->messages + in->rows, 1);
        }
        if (got <= 0)
            return;
        in->fetched = in->rows + got;
    }
}

static int64_t aligned(int64_t size) { return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* Computes each buffer's size, in bytes. A column that is not wanted has no buffers. */
static void measure_buffers(const struct intake *in, int64_t *sizes) {
    int64_t rows = in->rows;
    int64_t bits = (rows + 7) / 8;
    memset(sizes, 0, SECTIONS * sizeof(*sizes));
    if (wants(in, KEY)) {
        sizes[KEY_VALID] = in->null_keys > 0 ? bits : 0;
        sizes[KEY_OFFSETS] = (rows + 1) * 4;
        sizes[KEY_DATA] = in->key_bytes;
    }
    if (wants(in, VALUE)) {
        sizes[VALUE_VALID] = in->null_values > 0 ? bits : 0;
        sizes[VALUE_OFFSETS] = (rows + 1) * 4;
        sizes[VALUE_DATA] = in->value_bytes;
    }
    if (wants(in, TOPIC)) {
        sizes[TOPIC_OFFSETS] = (rows + 1) * 4;
        sizes[TOPIC_DATA] = rows * in->topic_size;
    }
    sizes[PARTITIONS] = wants(in, PARTITION) ? rows * 4 : 0;
    sizes[OFFSETS] = wants(in, OFFSET) ? rows * 8 : 0;
    sizes[TIMESTAMPS] = wants(in, TIMESTAMP) ? rows * 8 : 0;
    sizes[TIMESTAMP_TYPES] = wants(in, TIMESTAMP_TYPE) ? rows * 4 : 0;
    if (wants(in, HEADERS)) {
        sizes[HEADERS_VALID] = in->without_headers > 0 ? bits : 0;
        sizes[HEADERS_OFFSETS] = (rows + 1) * 4;
        sizes[HEADER_KEY_OFFSETS] = (in->headers + 1) * 4;
        sizes[HEADER_KEY_DATA] = in->header_key_bytes;
        sizes[HEADER_VALUE_VALID] = in->null_header_values > 0 ? (in->headers + 7) / 8 : 0;
        sizes[HEADER_VALUE_OFFSETS] = (in->headers + 1) * 4;
        sizes[HEADER_VALUE_DATA] = in->header_value_bytes;
    }
}

/* Allocates a block for buffers of these sizes, and sets where each buffer starts. A bitmap of size 0 is NULL: nothing is null.
 * Returns NULL if there is not enough memory. */
static struct block *new_block(const int64_t *sizes, uint8_t **sections) {
    int64_t head = aligned((int64_t)sizeof(struct block)), total = 0;
    for (int section = 0; section < SECTIONS; section++)
        total += aligned(sizes[section]);
    struct block *block = malloc((size_t)(head + total + ALIGNMENT));
    if (block == NULL)
        return NULL;
    uint8_t *at = (uint8_t *)aligned((int64_t)(uintptr_t)block + head);
    for (int section = 0; section < SECTIONS; section++) {
        sections[section] = at;
        at += aligned(sizes[section]);
    }
    static const enum section bitmaps[] = {KEY_VALID, VALUE_VALID, HEADERS_VALID, HEADER_VALUE_VALID};
    for (size_t index = 0; index < sizeof(bitmaps) / sizeof(*bitmaps); index++) {
        enum section section = bitmaps[index];
        if (sizes[section] == 0)
            sections[section] = NULL;
        else
            memset(sections[section], 0, (size_t)sizes[section]);
    }
    return block;
}

/* A string or binary column that is being written. `valid` is NULL if the column has no nulls. */
struct bytes_column {
    uint8_t *valid;
    int32_t *offsets;
    uint8_t *data;
    int64_t count;
    int64_t size;
};

static struct bytes_column bytes_column(uint8_t *valid, uint8_t *offsets, uint8_t *data) {
    struct bytes_column column = {valid, (int32_t *)offsets, data, 0, 0};
    column.offsets[0] = 0;
    return column;
}

static void set_valid(uint8_t *bitmap, int64_t index) {
    if (bitmap != NULL)
        bitmap[index / 8] |= (uint8_t)(1 << (index % 8));
}

static void append(struct bytes_column *column, const void *bytes, size_t size) {
    if (bytes != NULL) {
        set_valid(column->valid, column->count);
        memcpy(column->data + column->size, bytes, size);
        column->size += (int64_t)size;
    }
    column->offsets[++column->count] = (int32_t)column->size;
}

static void append_headers(const struct intake *in, const struct message *message, struct bytes_column *keys,
                           struct bytes_column *values) {
    void *headers;
    if (in->library.message_headers(message, &headers) != NO_ERROR)
        return;
    size_t count = in->library.header_cnt(headers);
    for (size_t index = 0; index < count; index++) {
        const char *key;
        const void *value;
        size_t size;
        in->library.header_get_all(headers, index, &key, &value, &size);
        append(keys, key, key_size(in, key));
        append(values, value, size);
    }
}

/* librdkafka's timestamp types: 0 is not available, 1 create time, 2 log append time. */
#define NO_TIMESTAMP 0

/* The timestamp for a record that has none (message format 0), as in Java's `RecordBatch.NO_TIMESTAMP`. librdkafka returns 0. */
#define NO_TIMESTAMP_MS (-1)

/* Converts ms to µs. A timestamp that does not fit becomes the nearest one that does. */
static int64_t to_us(int64_t ms) {
    if (ms > LARGEST_TIMESTAMP_MS)
        ms = LARGEST_TIMESTAMP_MS;
    else if (ms < -LARGEST_TIMESTAMP_MS)
        ms = -LARGEST_TIMESTAMP_MS;
    return ms * 1000;
}

static void fill_topics(const struct intake *in, int32_t *offsets, uint8_t *data) {
    for (int64_t row = 0; row <= in->rows; row++)
        offsets[row] = (int32_t)(row * in->topic_size);
    for (int64_t row = 0; row < in->rows; row++)
        memcpy(data + row * in->topic_size, in->topic, (size_t)in->topic_size);
}

/* Copies the rows' wanted columns into their buffers, and frees the messages. */
static void fill(struct intake *in, uint8_t **sections) {
    int want_key = wants(in, KEY), want_value = wants(in, VALUE), want_headers = wants(in, HEADERS);
    struct bytes_column keys, values, header_keys, header_values;
    int64_t *offsets = wants(in, OFFSET) ? (int64_t *)sections[OFFSETS] : NULL;
    int64_t *timestamps = wants(in, TIMESTAMP) ? (int64_t *)sections[TIMESTAMPS] : NULL;
    int32_t *types = wants(in, TIMESTAMP_TYPE) ? (int32_t *)sections[TIMESTAMP_TYPES] : NULL;
    int32_t *headers_offsets = (int32_t *)sections[HEADERS_OFFSETS];
    if (wants(in, TOPIC))
        fill_topics(in, (int32_t *)sections[TOPIC_OFFSETS], sections[TOPIC_DATA]);
    if (wants(in, PARTITION))
        for (int64_t row = 0; row < in->rows; row++)
            ((int32_t *)sections[PARTITIONS])[row] = in->partition;
    if (want_key)
        keys = bytes_column(sections[KEY_VALID], sections[KEY_OFFSETS], sections[KEY_DATA]);
    if (want_value)
        values = bytes_column(sections[VALUE_VALID], sections[VALUE_OFFSETS], sections[VALUE_DATA]);
    if (want_headers) {
        header_keys = bytes_column(NULL, sections[HEADER_KEY_OFFSETS], sections[HEADER_KEY_DATA]);
        header_values =
            bytes_column(sections[HEADER_VALUE_VALID], sections[HEADER_VALUE_OFFSETS], sections[HEADER_VALUE_DATA]);
        headers_offsets[0] = 0;
    }
    for (int64_t row = 0; row < in->rows; row++) {
        struct message *message = in->messages[row];
        if (want_key)
            append(&keys, message->key, message->key_size);
        if (want_value)
            append(&values, message->value, message->value_size);
        if (offsets != NULL)
            offsets[row] = message->offset;
        if (timestamps != NULL || types != NULL) {
            int32_t type = NO_TIMESTAMP;
            int64_t ms = in->library.message_timestamp(message, &type);
            if (timestamps != NULL)
                timestamps[row] = to_us(type == NO_TIMESTAMP ? NO_TIMESTAMP_MS : ms);
            /* Spark shows Java's TimestampType.id, which is one less. */
            if (types != NULL)
                types[row] = type - 1;
        }
        if (want_headers) {
            append_headers(in, message, &header_keys, &header_values);
            headers_offsets[row + 1] = (int32_t)header_keys.count;
            if (headers_offsets[row + 1] > headers_offsets[row])
                set_valid(sections[HEADERS_VALID], row);
        }
        in->library.message_destroy(message);
    }
}

/* Releases an array inside a batch. There is nothing to free, because the block is freed with the batch. */
static void release_part(struct array *array) { array->release = NULL; }

static void release_batch(struct array *array) {
    free(array->private_data);
    array->release = NULL;
}

/* Sets an array in the block: its length, its number of nulls, and `count` buffers. */
static struct array *set_array(struct block *block, int index, int64_t length, int64_t nulls, int count, const void *first,
                               const void *second, const void *third) {
    const void **buffers = block->buffers[index];
    buffers[0] = first;
    buffers[1] = second;
    buffers[2] = third;
    struct array *array = &block->arrays[index];
    *array = (struct array){.length = length, .null_count = nulls, .n_buffers = count, .buffers = buffers, .release = release_part};
    return array;
}

static struct array *header_lists(const struct intake *in, struct block *block, uint8_t **sections) {
    struct array *lists =
        set_array(block, HEADERS, in->rows, in->without_headers, 2, sections[HEADERS_VALID], sections[HEADERS_OFFSETS], NULL);
    struct array *element = set_array(block, HEADER_ELEMENT, in->headers, 0, 1, NULL, NULL, NULL);
    lists->n_children = 1;
    lists->children = block->header_element;
    lists->children[0] = element;
    element->n_children = 2;
    element->children = block->header_fields;
    element->children[0] = set_array(block, HEADER_KEY, in->headers, 0, 3, NULL, sections[HEADER_KEY_OFFSETS],
                                     sections[HEADER_KEY_DATA]);
    element->children[1] = set_array(block, HEADER_VALUE, in->headers, in->null_header_values, 3, sections[HEADER_VALUE_VALID],
                                     sections[HEADER_VALUE_OFFSETS], sections[HEADER_VALUE_DATA]);
    return lists;
}

static struct array *column_array(const struct intake *in, enum column column, struct block *block, uint8_t **at) {
    int64_t rows = in->rows;
    switch (column) {
    case KEY:
        return set_array(block, KEY, rows, in->null_keys, 3, at[KEY_VALID], at[KEY_OFFSETS], at[KEY_DATA]);
    case VALUE:
        return set_array(block, VALUE, rows, in->null_values, 3, at[VALUE_VALID], at[VALUE_OFFSETS], at[VALUE_DATA]);
    case TOPIC:
        return set_array(block, TOPIC, rows, 0, 3, NULL, at[TOPIC_OFFSETS], at[TOPIC_DATA]);
    case PARTITION:
        return set_array(block, PARTITION, rows, 0, 2, NULL, at[PARTITIONS], NULL);
    case OFFSET:
        return set_array(block, OFFSET, rows, 0, 2, NULL, at[OFFSETS], NULL);
    case TIMESTAMP:
        return set_array(block, TIMESTAMP, rows, 0, 2, NULL, at[TIMESTAMPS], NULL);
    case TIMESTAMP_TYPE:
        return set_array(block, TIMESTAMP_TYPE, rows, 0, 2, NULL, at[TIMESTAMP_TYPES], NULL);
    default:
        return header_lists(in, block, at);
    }
}

static void begin_next_batch(struct intake *in) {
    memmove(in->messages, in->messages + in->seen, (size_t)(in->fetched - in->seen) * sizeof(*in->messages));
    in->fetched -= in->seen;
    in->seen = in->rows = 0;
    in->bytes = in->key_bytes = in->null_keys = in->value_bytes = in->null_values = 0;
    in->without_headers = in->headers = in->header_key_bytes = in->header_value_bytes = 0;
    in->null_header_values = in->odd_header_keys = 0;
}

/* Sets `batch` to the rows, as an array of structs with one field per column in `order`, and frees their messages. The next batch
 * begins with the remaining messages. The caller must release the batch as a whole, and must not move any part of it elsewhere.
 * If there is not enough memory, returns 0 and changes nothing. */
EXPORT int64_t gs_batch(struct intake *in, struct array *batch) {
    int64_t sizes[SECTIONS];
    uint8_t *sections[SECTIONS];
    measure_buffers(in, sizes);
    struct block *block = new_block(sizes, sections);
    if (block == NULL)
        return 0;
    for (int64_t index = 0; index < in->column_count; index++)
        block->columns[index] = column_array(in, (enum column)in->order[index], block, sections);
    block->no_bitmap[0] = NULL;
    *batch = (struct array){.length = in->rows,
                            .n_buffers = 1,
                            .n_children = in->column_count,
                            .buffers = block->no_bitmap,
                            .children = block->columns,
                            .release = release_batch,
                            .private_data = block};
    fill(in, sections);
    begin_next_batch(in);
    return 1;
}

/* Frees all messages, including those of the batch. */
EXPORT void gs_close(struct intake *in) {
    gs_forget_fetched(in);
    for (int64_t row = 0; row < in->rows; row++)
        in->library.message_destroy(in->messages[row]);
    in->rows = in->seen = in->fetched = 0;
}
