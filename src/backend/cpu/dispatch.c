/*
 * backend/cpu/dispatch: which ISA levels this build has, which of them this machine runs, and the table for a
 * choice.
 *
 * The build defines LG_HAVE_<LEVEL> for the files that it compiled. Detection asks the operating system too:
 * a CPU that has AVX under a kernel that does not save its registers has no AVX.
 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#ifndef LG_HAVE_AVX2
#define LG_HAVE_AVX2 0
#endif
#ifndef LG_HAVE_AVX512VNNI
#define LG_HAVE_AVX512VNNI 0
#endif
#ifndef LG_HAVE_NEON
#define LG_HAVE_NEON 0
#endif
#ifndef LG_HAVE_DOTPROD
#define LG_HAVE_DOTPROD 0
#endif
#ifndef LG_HAVE_I8MM
#define LG_HAVE_I8MM 0
#endif

typedef struct level {
    const char *name;
    unsigned flag;
} level;

// Weakest first: a level's flags are its own and those of the levels before it.
static const level levels[] = {
    {"c", LG_CPU_C},
#if LG_HAVE_AVX2
    {"avx2", LG_CPU_AVX2},
#endif
#if LG_HAVE_AVX512VNNI
    {"avx512vnni", LG_CPU_AVX512VNNI},
#endif
#if LG_HAVE_NEON
    {"neon", LG_CPU_NEON},
#endif
#if LG_HAVE_DOTPROD
    {"dotprod", LG_CPU_DOTPROD},
#endif
#if LG_HAVE_I8MM
    {"i8mm", LG_CPU_I8MM},
#endif
};
enum { N_LEVELS = sizeof levels / sizeof levels[0] };

const char *lg_cpu_isa_list(void)
{
    return "c"
#if LG_HAVE_AVX2
           " avx2"
#endif
#if LG_HAVE_AVX512VNNI
           " avx512vnni"
#endif
#if LG_HAVE_NEON
           " neon"
#endif
#if LG_HAVE_DOTPROD
           " dotprod"
#endif
#if LG_HAVE_I8MM
           " i8mm"
#endif
        ;
}

#if defined(__x86_64__)
// clang 14's __builtin_cpu_supports does not know the name. Its registers are AVX's, which the caller asks
// for.
static bool has_f16c(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}

static unsigned machine_flags(void)
{
    unsigned f = 0;

    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        f |= LG_CPU_AVX2;
    if (f && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni"))
        f |= LG_CPU_AVX512VNNI;
    return f;
}
#elif defined(__aarch64__) && defined(__linux__)
static unsigned machine_flags(void)
{
    enum { HWCAP_DOTPROD_BIT = 20, HWCAP2_I8MM_BIT = 13 }; // arch/arm64 uapi numbers
    unsigned f = LG_CPU_NEON;

    if (getauxval(AT_HWCAP) >> HWCAP_DOTPROD_BIT & 1)
        f |= LG_CPU_DOTPROD;
    if ((f & LG_CPU_DOTPROD) && (getauxval(AT_HWCAP2) >> HWCAP2_I8MM_BIT & 1))
        f |= LG_CPU_I8MM;
    return f;
}
#elif defined(__aarch64__) && defined(__APPLE__)
static bool has(const char *feature)
{
    int value = 0;
    size_t size = sizeof value;

    return sysctlbyname(feature, &value, &size, NULL, 0) == 0 && value;
}

static unsigned machine_flags(void)
{
    unsigned f = LG_CPU_NEON;

    if (has("hw.optional.arm.FEAT_DotProd"))
        f |= LG_CPU_DOTPROD;
    if ((f & LG_CPU_DOTPROD) && has("hw.optional.arm.FEAT_I8MM"))
        f |= LG_CPU_I8MM;
    return f;
}
#else
static unsigned machine_flags(void)
{
    return 0;
}
#endif

unsigned lg_cpu_detect(void)
{
    unsigned built = 0;

    for (int i = 0; i < N_LEVELS; i++)
        built |= levels[i].flag;
    return built & machine_flags();
}

bool lg_cpu_isa_find(const char *name, unsigned *flags)
{
    unsigned have = lg_cpu_detect(), upto = 0;

    if (!name || !name[0]) {
        *flags = have;
        return true;
    }
    for (int i = 0; i < N_LEVELS; i++) {
        upto |= levels[i].flag;
        if (strcmp(levels[i].name, name) == 0) {
            if ((have & upto) != upto)
                return false;
            *flags = upto;
            return true;
        }
    }
    return false;
}

void lg_cpu_kernels_init(lg_cpu_kernels *k, unsigned flags)
{
    memset(k, 0, sizeof *k);
    lg_cpu_init_c(k);
    lg_cpu_vec_init_c(&k->vec);
#if LG_HAVE_AVX2
    if (flags & LG_CPU_AVX2) {
        lg_cpu_init_avx2(k);
        lg_cpu_vec_init_avx2(&k->vec);
    }
#endif
#if LG_HAVE_AVX512VNNI
    if (flags & LG_CPU_AVX512VNNI) {
        lg_cpu_init_avx512vnni(k);
        if (flags & LG_CPU_TO_L2)
            lg_cpu_vec_init_avx512_l2(&k->vec);
        else
            lg_cpu_vec_init_avx512(&k->vec);
    }
#endif
#if LG_HAVE_NEON
    if (flags & LG_CPU_NEON) {
        lg_cpu_init_neon(k);
        lg_cpu_vec_init_neon(&k->vec);
    }
#endif
#if LG_HAVE_DOTPROD
    if (flags & LG_CPU_DOTPROD)
        lg_cpu_init_dotprod(k);
#endif
#if LG_HAVE_I8MM
    if (flags & LG_CPU_I8MM)
        lg_cpu_init_i8mm(k);
#endif
    (void)flags;
}
