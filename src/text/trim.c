/*
 * text/trim: see trim.h.
 */
#include "text/trim.h"

bool lg_is_space(int32_t cp)
{
    if (cp < 0x80)
        return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 ||
           cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

lg_str lg_trim_left(lg_str s)
{
    while (s.n > 0) {
        int32_t cp;
        int len = lg_utf8_step(s.p, s.n, &cp);
        if (!lg_is_space(cp))
            break;
        s.p += len;
        s.n -= (size_t)len;
    }
    return s;
}

lg_str lg_trim_right(lg_str s)
{
    while (s.n > 0) {
        size_t len = 1;
        int32_t cp;
        while (len < s.n && len < 4 && ((unsigned char)s.p[s.n - len] & 0xC0) == 0x80)
            len++;
        if (lg_utf8_step(s.p + s.n - len, len, &cp) != (int)len || !lg_is_space(cp))
            break;
        s.n -= len;
    }
    return s;
}

lg_str lg_trim(lg_str s)
{
    return lg_trim_right(lg_trim_left(s));
}

bool lg_is_blank(lg_str s)
{
    return lg_trim_left(s).n == 0;
}
