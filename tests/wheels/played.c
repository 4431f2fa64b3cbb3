/* Loads the library of a wheel and takes in three messages of a librdkafka that is played: a record without a key, one with a
 * header, and an error. For platforms without a Python to test with. */

#include <dlfcn.h>
#include <stdio.h>

/* For the structs. Every call below goes to the library. */
#include "_native.c"

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
    FUNCTION(int64_t, layout, (const struct intake *, int64_t *, int64_t *));
    FUNCTION(void, fill, (struct intake *, uint8_t *, const int64_t *, const int64_t *));
    FUNCTION(void, close, (struct intake *));
    CHECK(abi && size_of_intake && take && layout && fill && close);
    CHECK(abi() == GS_ABI && size_of_intake() == sizeof(struct intake));

    static _Alignas(64) uint8_t block[4096];
    struct message *room[10];
    int64_t begins[SECTIONS], sizes[SECTIONS];
    struct intake in = {.library = {consume, destroy, errstr, timestamp, headers_of, count, get}};
    in.messages = room, in.row_limit = 10, in.byte_limit = 1000, in.columns = KEY | VALUE | OFFSET | TIMESTAMP | HEADERS;

    take(&in, 5, 20, 0);
    CHECK(in.rows == 2 && in.first == 7 && in.next == 10 && !in.full);
    CHECK(in.event && in.event_error == -195 && in.event_offset == 11 && strcmp(in.event_text, "an error") == 0);
    CHECK(destroyed == 1);
    CHECK(layout(&in, begins, sizes) <= (int64_t)sizeof(block));
    fill(&in, block, begins, sizes);
    CHECK(in.rows == 0 && destroyed == 3);

    const int64_t *offsets = (int64_t *)(block + begins[OFFSETS]), *times = (int64_t *)(block + begins[TIMESTAMPS]);
    const int32_t *ends = (int32_t *)(block + begins[VALUE_OFFSETS]), *lists = (int32_t *)(block + begins[HEADERS_OFFSETS]);
    CHECK(offsets[0] == 7 && offsets[1] == 9 && times[0] == 7000000 && times[1] == 9000000);
    CHECK(block[begins[KEY_VALID]] == 2 && sizes[KEY_DATA] == 1 && block[begins[KEY_DATA]] == 'k');
    CHECK(sizes[VALUE_VALID] == 0 && ends[1] == 5 && ends[2] == 11 && memcmp(block + begins[VALUE_DATA], "firstsecond", 11) == 0);
    CHECK(block[begins[HEADERS_VALID]] == 2 && lists[1] == 0 && lists[2] == 1);
    CHECK(memcmp(block + begins[HEADER_KEY_DATA], "trace", 5) == 0 && memcmp(block + begins[HEADER_VALUE_DATA], "id", 2) == 0);
    close(&in);
    printf("passed\n");
    return 0;
}
