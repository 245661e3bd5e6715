/*
 * app/id_list: see id_list.h.
 */
#include "app/id_list.h"

typedef struct reader {
    lg_str s;
    size_t at;
} reader;

static bool blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void skip_blanks(reader *r)
{
    while (r->at < r->s.n && blank(r->s.p[r->at]))
        r->at++;
}

static bool take(reader *r, char c)
{
    if (r->at == r->s.n || r->s.p[r->at] != c)
        return false;
    r->at++;
    return true;
}

// The next word, up to what may end an id.
static lg_str word(reader *r)
{
    size_t from = r->at;

    while (r->at < r->s.n && !blank(r->s.p[r->at]) && r->s.p[r->at] != ',' && r->s.p[r->at] != ']')
        r->at++;
    if (r->at == from && r->at < r->s.n)
        r->at++;
    return (lg_str){r->s.p + from, r->at - from};
}

static lg_status read_id(reader *r, int32_t n_vocab, lg_ids *out, lg_err *err)
{
    lg_str w = word(r);
    int64_t id;

    if (w.n == 0)
        return LG_FAIL(err, LG_E_INPUT, "ends where a token id should stand");
    if (!lg_str_i64(w, &id) || id < 0 || id >= n_vocab)
        return LG_FAIL(err, LG_E_INPUT,
                       "\"%.*s\" is no token id; they are numbers from 0 to %d, separated by spaces or "
                       "in a JSON array",
                       (int)(w.n < 40 ? w.n : 40), w.p, n_vocab - 1);
    return lg_ids_add(out, (int32_t)id, err);
}

lg_status lg_app_read_ids(lg_str text, int32_t n_vocab, lg_ids *out, lg_err *err)
{
    reader r = {.s = text};

    skip_blanks(&r);
    if (!take(&r, '[')) {
        for (; r.at < text.n; skip_blanks(&r))
            LG_TRY(read_id(&r, n_vocab, out, err));
        return LG_OK;
    }
    skip_blanks(&r);
    for (bool first = true; !take(&r, ']'); first = false) {
        if (!first && !take(&r, ','))
            return LG_FAIL(err, LG_E_INPUT, "a comma or ] must follow id %zu of the array", out->n);
        skip_blanks(&r);
        LG_TRY(read_id(&r, n_vocab, out, err));
        skip_blanks(&r);
    }
    skip_blanks(&r);
    if (r.at < text.n)
        return LG_FAIL(err, LG_E_INPUT, "there is something behind the array of ids");
    return LG_OK;
}
