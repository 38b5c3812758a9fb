/* Texts of GGUF files and merges of vocabularies: hostile lengths, long tokens, one pair a token.
 */
#include <string.h>

#include "check.h"
#include "lora/opening.h"

#define TOKENS 7

/* Exactly as many bytes as there are, so that the sanitizer sees one more. */
static uint8_t *stored(const char *const *texts, uint32_t count, uint64_t *bytes) {
    *bytes = 0;
    for (uint32_t i = 0; i < count; i++) *bytes += 8 + strlen(texts[i]);
    uint8_t *file = malloc(*bytes), *at = file;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t length = strlen(texts[i]);
        memcpy(at, &length, 8);
        memcpy(at + 8, texts[i], length);
        at += 8 + length;
    }
    return file;
}

static void test_texts_end_within_the_file(void) {
    const char *texts[] = {"", "a\n", "bcd"};
    uint64_t bytes;
    uint8_t *file = stored(texts, 3, &bytes);
    CHECK(lora_texts_end(file, bytes, 0, 3) == bytes);
    CHECK(lora_texts_end(file, bytes, 0, 4) == 0);
    CHECK(lora_texts_end(file, bytes, bytes + 1, 1) == 0);
    CHECK(lora_texts_end(file, bytes, bytes - 3, 1) == 0);
    for (uint64_t cut = 0; cut < bytes; cut++) {
        uint8_t *part = malloc(cut + 1);
        memcpy(part, file, cut);
        CHECK(lora_texts_end(part, cut, 0, 3) == 0);
        free(part);
    }
    uint8_t joined[8];
    CHECK(lora_texts_joined(file, 3, 0, joined) == 1);
    CHECK(memcmp(joined, "\0a\n\0bcd\0", 8) == 0);
    CHECK(lora_texts_joined(file, 3, '\n', joined) == 0);
    memset(file, 0xff, 8);
    CHECK(lora_texts_end(file, bytes, 0, 1) == 0);
    free(file);
}

static void test_a_token_has_the_pair_that_is_merged_last(void) {
    const char *texts[TOKENS] = {"a", "b", "c", "ab", "bc", "abc", "ca"};
    const double scores[TOKENS] = {0, 0, 0, -2, -1, -3, -1};
    const uint8_t made[TOKENS] = {1, 1, 1, 1, 1, 1, 0};
    uint32_t pairs[TOKENS][2];
    uint64_t bytes;
    uint8_t *file = stored(texts, TOKENS, &bytes);
    struct lora_vocabulary vocabulary = {file, scores, made, 99, TOKENS};
    CHECK(lora_token_merges(&vocabulary, pairs[0]) == 0);
    CHECK(pairs[0][0] == UINT32_MAX && pairs[6][0] == UINT32_MAX);
    CHECK(pairs[3][0] == 0 && pairs[3][1] == 1);
    CHECK(pairs[5][0] == 0 && pairs[5][1] == 4); /* bc before ab */
    free(file);
}

static void test_tokens_of_many_characters_are_refused(void) {
    static char longest[4098];
    memset(longest, 'a', sizeof longest - 1);
    const char *texts[] = {"a", longest};
    const double scores[] = {0, 0};
    const uint8_t made[] = {1, 1}, none[] = {0, 0};
    uint32_t pairs[2][2];
    uint64_t bytes;
    uint8_t *file = stored(texts, 2, &bytes);
    struct lora_vocabulary vocabulary = {file, scores, made, 99, 2};
    CHECK(lora_token_merges(&vocabulary, pairs[0]) == 1);
    vocabulary.made = none;
    CHECK(lora_token_merges(&vocabulary, pairs[0]) == 0);
    free(file);
}

int main(void) {
    test_texts_end_within_the_file();
    test_a_token_has_the_pair_that_is_merged_last();
    test_tokens_of_many_characters_are_refused();
    puts("opening: ok");
    return 0;
}
