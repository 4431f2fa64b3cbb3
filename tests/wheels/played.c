/* Loads the library of a wheel and takes in three messages of a librdkafka that is played: a record without a key, one with a
 * header, and an error. For platforms without a Python to test with. */

#include <dlfcn.h>
#include <stdio.h>

/* For the structs. Every call below goes to the library. */
#include "_intake.c"

#define CHECK(what)                                                                                                            \
    if (!(what))                                                                                                               \
    return printf("line %d: %s\n", __LINE__, #what), 1
#define FUNCTION(result, name, arguments) result(*name) arguments = (result(*) arguments)dlsym(library, "gs_" #name)

static struct message messages[] = {
    {.offset = 7, .value = "first", .value_size = 5},
    {.offset = 9, .key = "k", .key_size = 1, .value = "second", .value_size = 6},
    {.offset = 11, .err = -195},
};
static int consumed, destroyed;

static ptrdiff_t consume(void *queue, int timeout_ms, struct message **into, size_t most) {
    ptrdiff_t got = 0;
    (void)queue, (void)timeout_ms;
    while ((size_t)got < most && consumed < 3)
        into[got++] = &messages[consumed++];
    return got;
}

static void destroy(struct message *message) { destroyed += message != NULL; }

static const char *errstr(const struct message *message) { return message->err ? "an error" : NULL; }

static int64_t timestamp(const struct message *message, int32_t *type) {
    *type = 1;
    return message->offset * 1000;
}

static int32_t headers_of(const struct message *message, void **headers) {
    *headers = (void *)message;
    return message->offset == 9 ? NO_ERROR : ERR_NOENT;
}

static size_t count(const void *headers) { return headers != NULL; }

static int32_t get(const void *headers, size_t index, const char **key, const void **value, size_t *size) {
    (void)headers, (void)index;
    *key = "trace", *value = "id", *size = 2;
    return NO_ERROR;
}

int main(int given, char **arguments) {
    void *library = given == 2 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL)
        return printf("%s\n", dlerror()), 1;
    FUNCTION(int64_t, abi, (void));
    FUNCTION(int64_t, size_of_intake, (void));
    FUNCTION(void, take, (struct intake *, int64_t, int64_t, int));
    FUNCTION(int64_t, batch, (struct intake *, struct array *));
    FUNCTION(void, close, (struct intake *));
    CHECK(abi && size_of_intake && take && batch && close);
    CHECK(abi() == GS_ABI && size_of_intake() == sizeof(struct intake));

    struct message *room[10];
    struct intake in = {.library = {consume, destroy, errstr, timestamp, headers_of, count, get}};
    in.messages = room, in.row_limit = 10, in.byte_limit = 1000;
    in.columns = 1 << KEY | 1 << VALUE | 1 << TOPIC | 1 << OFFSET | 1 << TIMESTAMP | 1 << HEADERS;
    in.column_count = 6, in.order[0] = OFFSET, in.order[1] = TIMESTAMP, in.order[2] = KEY, in.order[3] = VALUE;
    in.order[4] = HEADERS, in.order[5] = TOPIC, in.topic = "orders", in.topic_size = 6;

    take(&in, 5, 20, 0);
    CHECK(in.rows == 2 && in.first == 7 && in.next == 10 && !in.full);
    CHECK(in.event && in.event_error == -195 && in.event_offset == 11 && strcmp(in.event_text, "an error") == 0);
    CHECK(destroyed == 1);
    struct array made;
    CHECK(batch(&in, &made) == 1 && made.length == 2 && made.n_children == 6);
    CHECK(in.rows == 0 && destroyed == 3);

    struct array *key = made.children[2], *value = made.children[3], *lists = made.children[4], *topic = made.children[5];
    const int64_t *offsets = made.children[0]->buffers[1], *times = made.children[1]->buffers[1];
    CHECK(offsets[0] == 7 && offsets[1] == 9 && times[0] == 7000000 && times[1] == 9000000);
    CHECK(key->null_count == 1 && *(uint8_t *)key->buffers[0] == 2 && *(char *)key->buffers[2] == 'k');
    const int32_t *ends = value->buffers[1], *headers_ends = lists->buffers[1];
    CHECK(value->buffers[0] == NULL && ends[1] == 5 && ends[2] == 11 && memcmp(value->buffers[2], "firstsecond", 11) == 0);
    CHECK(lists->null_count == 1 && *(uint8_t *)lists->buffers[0] == 2 && headers_ends[1] == 0 && headers_ends[2] == 1);
    struct array *header = lists->children[0];
    CHECK(header->length == 1 && memcmp(header->children[0]->buffers[2], "trace", 5) == 0);
    CHECK(memcmp(header->children[1]->buffers[2], "id", 2) == 0);
    CHECK(memcmp(topic->buffers[2], "ordersorders", 12) == 0);
    made.release(&made);
    CHECK(made.release == NULL);
    close(&in);
    printf("passed\n");
    return 0;
}
