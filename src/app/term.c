/*
 * app/term: see term.h. Only reads the terminal's properties; modes are the line editor's business.
 */
#include "app/term.h"

#include <langinfo.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/settings.h"

lg_term lg_term_of(FILE *f, const char *color)
{
    const char *term = lg_env(LG_ENV_TERM);
    const char *codeset = nl_langinfo(CODESET);
    lg_term t = {.tty = isatty(fileno(f)) == 1};

    t.attrs = t.tty && term && strcmp(term, "dumb") != 0;
    t.utf8 = strcasecmp(codeset, "UTF-8") == 0;
    t.color = t.attrs;
    if (strcmp(color, "always") == 0)
        t.color = true;
    else if (strcmp(color, "never") == 0 || lg_env(LG_ENV_NO_COLOR))
        t.color = false;
    else if (lg_env(LG_ENV_CLICOLOR_FORCE) || lg_env(LG_ENV_FORCE_COLOR))
        t.color = true;
    t.attrs = t.attrs || t.color;
    return t;
}

int lg_term_width(FILE *f)
{
    struct winsize ws;

    if (ioctl(fileno(f), TIOCGWINSZ, &ws) == 0 && ws.ws_col >= 20)
        return ws.ws_col;
    return 80;
}

void lg_term_text(FILE *f, lg_str text)
{
    size_t plain = 0; // start of the stretch that can go out as it is

    for (size_t i = 0; i < text.n;) {
        int32_t cp;
        size_t n = (size_t)lg_utf8_step(text.p + i, text.n - i, &cp);
        bool c1 = cp >= 0x80 && cp < 0xA0;

        if (cp != '\n' && cp != '\t' && ((cp >= 0 && cp < 0x20) || cp == 0x7F || c1 || cp < 0)) {
            (void)fwrite(text.p + plain, 1, i - plain, f);
            if (cp < 0)
                (void)fputs("\xEF\xBF\xBD", f);
            else if (c1)
                (void)fprintf(f, "^[%c", (char)(cp - 0x40));
            else
                (void)fprintf(f, "^%c", (char)(cp ^ 0x40));
            plain = i + n;
        }
        i += n;
    }
    (void)fwrite(text.p + plain, 1, text.n - plain, f);
}

void lg_term_style(FILE *f, const lg_term *t, lg_style style)
{
    static const char *const code[] = {"\033[0m", "\033[2m", "\033[1m", "\033[36m"};

    if (style == LG_STYLE_DIM || style == LG_STYLE_CODE ? t->color : t->attrs)
        (void)fputs(code[style], f);
}
