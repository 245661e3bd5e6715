/*
 * server/unknown: see unknown.h. The one list of the top-level fields that each dialect reads or takes
 * without effect; what is refused by name counts as known.
 */
#include "server/unknown.h"

#include <string.h>

#include "base/hash.h"
#include "base/log.h"

enum { CHAT = 1, RESPONSES = 2, COMPLETIONS = 4, INFILL = 8, MESSAGES = 16, OPENAI = 7, ALL = 31 };
enum { NAME_MAX_BYTES = 40 };

static const struct {
    const char *dialect;
    unsigned bit;
} dialects[] = {{"chat", CHAT}, {"responses", RESPONSES}, {"completions", COMPLETIONS}, {"infill", INFILL},
                {"messages", MESSAGES}};

static const struct {
    const char *name;
    unsigned of;
} fields[] = {
    // what to answer, how much, in which form
    {"model", ALL},
    {"stream", ALL},
    {"stream_options", OPENAI},
    {"max_tokens", ALL},
    {"max_completion_tokens", OPENAI},
    {"max_output_tokens", OPENAI},
    {"n", CHAT | COMPLETIONS},
    {"n_predict", INFILL},
    {"logprobs", CHAT | COMPLETIONS},
    {"top_logprobs", CHAT | RESPONSES},
    {"best_of", COMPLETIONS},
    {"echo", COMPLETIONS},
    {"stop", CHAT | COMPLETIONS | INFILL},
    {"stop_sequences", MESSAGES},
    {"messages", CHAT | MESSAGES},
    {"system", MESSAGES},
    {"input", RESPONSES},
    {"instructions", RESPONSES},
    {"include", RESPONSES},
    {"previous_response_id", RESPONSES},
    {"conversation", RESPONSES},
    {"background", RESPONSES},
    {"truncation", RESPONSES},
    {"text", RESPONSES},
    {"prompt", COMPLETIONS | INFILL},
    {"suffix", COMPLETIONS},
    {"input_prefix", INFILL},
    {"input_suffix", INFILL},
    {"input_extra", INFILL},
    {"continue_final_message", CHAT},
    {"add_generation_prompt", CHAT},
    {"audio", CHAT},
    {"modalities", CHAT},
    {"web_search_options", CHAT},
    {"mcp_servers", MESSAGES},
    // sampling
    {"temperature", ALL},
    {"top_p", ALL},
    {"top_k", ALL},
    {"min_p", ALL & ~MESSAGES},
    {"seed", ALL & ~MESSAGES},
    {"frequency_penalty", CHAT | COMPLETIONS | INFILL},
    {"presence_penalty", CHAT | COMPLETIONS | INFILL},
    {"repetition_penalty", CHAT | COMPLETIONS | INFILL},
    {"repeat_penalty", CHAT | COMPLETIONS | INFILL},
    {"repeat_last_n", CHAT | COMPLETIONS | INFILL},
    {"logit_bias", CHAT | COMPLETIONS | INFILL},
    // tools and shapes
    {"tools", CHAT | RESPONSES | MESSAGES},
    {"tool_choice", CHAT | RESPONSES | MESSAGES},
    {"parallel_tool_calls", CHAT | RESPONSES},
    {"functions", CHAT},
    {"function_call", CHAT},
    {"response_format", CHAT | COMPLETIONS},
    {"guided_json", CHAT | COMPLETIONS},
    {"guided_regex", CHAT | COMPLETIONS},
    {"guided_choice", CHAT | COMPLETIONS},
    {"guided_grammar", CHAT | COMPLETIONS},
    {"structured_outputs", CHAT | COMPLETIONS},
    {"json_schema", CHAT | COMPLETIONS},
    {"grammar", CHAT | COMPLETIONS},
    {"output_format", MESSAGES},
    // thinking
    {"reasoning_effort", CHAT | RESPONSES | MESSAGES},
    {"reasoning", CHAT | RESPONSES | MESSAGES},
    {"thinking", CHAT | RESPONSES | MESSAGES},
    {"enable_thinking", CHAT | RESPONSES | MESSAGES},
    {"think", CHAT | RESPONSES | MESSAGES},
    {"thinking_budget", CHAT | RESPONSES | MESSAGES},
    {"thinking_budget_tokens", CHAT | RESPONSES | MESSAGES},
    {"reasoning_budget", CHAT | RESPONSES | MESSAGES},
    {"chat_template_kwargs", CHAT | RESPONSES | MESSAGES},
    {"history_thinking", CHAT | RESPONSES | MESSAGES},
    {"output_config", CHAT | RESPONSES | MESSAGES},
    {"reasoning_format", CHAT},
    // taken, without effect
    {"user", OPENAI},
    {"metadata", ALL},
    {"store", CHAT | RESPONSES},
    {"service_tier", ALL},
    {"prompt_cache_key", CHAT | RESPONSES},
    {"prompt_cache_retention", CHAT | RESPONSES},
    {"safety_identifier", CHAT | RESPONSES},
    {"prediction", CHAT},
    {"verbosity", CHAT},
    {"cache_prompt", ALL},
    {"id_slot", ALL},
    {"client_metadata", RESPONSES},
    {"container", MESSAGES},
    {"context_management", MESSAGES},
    {"cache_control", MESSAGES},
};

static unsigned bit_of(const char *dialect)
{
    for (size_t i = 0; i < sizeof dialects / sizeof dialects[0]; i++)
        if (strcmp(dialects[i].dialect, dialect) == 0)
            return dialects[i].bit;
    return 0;
}

bool lg_unknown_is_known(const char *dialect, lg_str field)
{
    unsigned bit = bit_of(dialect);

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if ((fields[i].of & bit) && lg_str_eqz(field, fields[i].name))
            return true;
    return false;
}

// The first time that this name comes.
static bool is_new(lg_unknown *u, unsigned bit, lg_str name)
{
    uint64_t h = lg_hash_64(name.p, name.n, bit);
    bool found = false, fits;

    (void)pthread_mutex_lock(&u->lock);
    for (int i = 0; i < u->n && !found; i++)
        found = u->seen[i] == h;
    fits = u->n < LG_UNKNOWN_MAX;
    if (!found && fits)
        u->seen[u->n++] = h;
    (void)pthread_mutex_unlock(&u->lock);
    return !found && fits;
}

// A name as a name looks; anything else could be a text.
static bool is_name(lg_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
              c == '-' || c == '.'))
            return false;
    }
    return s.n > 0 && s.n <= NAME_MAX_BYTES;
}

void lg_unknown_log(lg_unknown *u, const lg_dialect *d, const lg_json *body)
{
    unsigned bit = bit_of(d->name);
    lg_str name;

    if (bit == 0 || !lg_log_on(LG_LOG_DEBUG))
        return;
    for (size_t i = 0; i < lg_json_len(body); i++) {
        (void)lg_json_member(body, i, &name);
        if (!lg_unknown_is_known(d->name, name) && is_name(name) && is_new(u, bit, name))
            LG_DEBUG("http", "unknown-field", "dialect=%s field=%.*s", d->name, (int)name.n, name.p);
    }
}
