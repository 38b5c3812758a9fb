/* The cases of a program: all of them, or those that its arguments name. */
#ifndef TEST_FW_CASES_H
#define TEST_FW_CASES_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct test_case {
    const char *name;
    void (*run)(void);
};

#define CASE(name) {#name, test_##name}

static int run_case(const struct test_case *cases, uint32_t count, const char *name) {
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(cases[i].name, name) == 0) return cases[i].run(), 0;
    fprintf(stderr, "no case %s\n", name);
    return 1;
}

static int run_cases(const struct test_case *cases, uint32_t count, int argc, char **argv) {
    int missing = 0;
    for (int i = 1; i < argc; i++) missing |= run_case(cases, count, argv[i]);
    for (uint32_t i = 0; argc == 1 && i < count; i++) cases[i].run();
    if (!missing) puts("ok");
    return missing;
}

#define RUN_CASES(cases, argc, argv) run_cases(cases, sizeof(cases) / sizeof(cases)[0], argc, argv)

#endif
