/*
 * base/settings_table: every setting of lagoon, one row each. From a row follow the flag (kv_type:
 * --kv-type), the environment variable (LAGOON_KV_TYPE), the key of lagoon.conf, the line of --help, the
 * entry of the annotated file that --init writes, and the member of lg_settings. Nothing else lists settings.
 *
 * X(group, name, type, letter, alias, arg, default, limits, help, why)
 *   group    LG_GROUP_<group>: its title in --help and in the file; rows of a group stand together
 *   type     bool int num str size secs list (settings.h)
 *   letter   short flag or 0; alias: a second long flag or NULL
 *   arg      what --help calls the value
 *   limits   int, num, secs: "low..high"; str, list: "a|b|c*" (a star ends a prefix), "" = anything;
 *            size: "", or words out of "auto" (may be left to lagoon) and "MiB" (the unit of a bare number)
 *   help     what it does, one line; no full stop
 *   why      when one would change it and what that costs; may be "" where help says it all
 */
#ifndef LG_BASE_SETTINGS_TABLE_H
#define LG_BASE_SETTINGS_TABLE_H

/* clang-format off */
#define LG_SETTING_GROUPS(X)                                                                                 \
    X(model,    "Model")                                                                                     \
    X(device,   "Device and memory")                                                                         \
    X(server,   "Server and keys")                                                                           \
    X(clients,  "Clients")                                                                                   \
    X(cache,    "Cache")                                                                                     \
    X(queue,    "Queue")                                                                                     \
    X(sampling, "Thinking and sampling")                                                                     \
    X(drafting, "Drafting")                                                                                  \
    X(logs,     "Logs")                                                                                      \
    X(screen,   "Dashboard and terminal")

/* Flags that only spell a value of a setting: --flag is the same as --setting=value. */
#define LG_SHORTHANDS(X)                                                                                     \
    X("mini",     model, "mini", "the same as --model mini: the small demonstration model")                  \
    X("no-draft", draft, "none", "the same as --draft none: plain decoding")                                 \
    X("no-tui",   tui,   "off",  "the same as --tui off: plain logs")

#define LG_SETTINGS(X)                                                                                       \
    X(model, model, str, 'm', NULL, "FILE|NAME", "s-2.1", "",                                                \
      "GGUF file (of a split one, any part), or s-2.1, xs-2.1, mini",                                        \
      "Set it to the file or model that you use most.")                                                      \
    X(model, models, str, 0, NULL, "DIR", "", "",                                                            \
      "folder that is searched first for a model NAME",                                                      \
      "Set it when your models live outside the Hugging Face cache.")                                        \
    X(model, chat_template, str, 0, NULL, "NAME", "auto", "auto|s21|v2",                                     \
      "template family of the prompts",                                                                      \
      "auto reads it from the file; a wrong family makes answers worse.")                                    \
    X(model, crlf_compat, str, 0, NULL, "HOW", "hf", "hf|llama",                                             \
      "how CR LF line ends are split into tokens",                                                           \
      "hf is what the model was trained with; llama gives the ids of llama.cpp, for comparisons.")           \
    X(model, fim_order, str, 0, NULL, "ORDER", "psm", "psm|spm|off",                                         \
      "order of prefix, suffix and middle in fill-in-the-middle prompts",                                    \
      "Change it for a model that was trained the other way round.")                                         \
    X(model, auto_download, bool, 0, NULL, "", "no", "",                                                     \
      "download a missing model without asking",                                                             \
      "For machines without a terminal; a download is tens of gigabytes.")                                   \
    X(device, device, str, 0, NULL, "DEVICE", "auto", "auto|cpu|cuda|cuda:*|metal",                          \
      "where the model runs",                                                                                \
      "auto takes a GPU that can hold the model, else the CPU; a named device fails, it does not fall back.")\
    X(device, threads, int, 't', NULL, "N", "0", "0..1024",                                                  \
      "CPU threads; 0 = the physical cores this process may use",                                            \
      "Fewer leave room for other programs; more than there are cores is slower.")                           \
    X(device, ctx, int, 'c', NULL, "N", "0", "0..16777216",                                                  \
      "context length in tokens; 0 = what the model was trained for",                                        \
      "Less takes less memory; left at 0 it is lowered, with the reason, when memory is short.")             \
    X(device, kv_type, str, 0, NULL, "TYPE", "f16", "f16|f32|q8_0",                                          \
      "element type of the KV cache",                                                                        \
      "q8_0 halves the memory of a long context at some loss of accuracy; f32 is for comparisons.")          \
    X(device, isa, str, 0, NULL, "LEVEL", "auto", "auto|c|avx2|avx512vnni|neon|dotprod|i8mm",                \
      "highest CPU kernel level to use",                                                                     \
      "auto is the best that this machine has; the others are for tests, c is very slow.")                   \
    X(server, host, str, 0, NULL, "ADDRESS", "127.0.0.1", "",                                                \
      "address to listen on",                                                                                \
      "0.0.0.0 lets other machines in; set api_key then.")                                                   \
    X(server, port, int, 0, NULL, "N", "5241", "0..65535",                                                   \
      "port to listen on; 0 = any free one",                                                                 \
      "Change it when another program has the port.")                                                        \
    X(server, api_key, list, 0, NULL, "KEY", "", "",                                                         \
      "key that clients must send; may be repeated, none = no key is asked for",                             \
      "A [client NAME] section with a key of its own names that client in logs and on the dashboard.")       \
    X(server, api_key_file, str, 0, NULL, "FILE", "", "",                                                    \
      "file with one API key a line",                                                                        \
      "Keeps keys out of a file that others can read.")                                                      \
    X(server, tls_cert, str, 0, NULL, "FILE", "", "",                                                        \
      "certificate chain (PEM); with tls_key the server speaks HTTPS",                                       \
      "Needed only where no proxy in front does it.")                                                        \
    X(server, tls_key, str, 0, NULL, "FILE", "", "",                                                         \
      "private key (PEM) that belongs to tls_cert", "")                                                      \
    X(server, cors, list, 0, NULL, "ORIGIN", "off", "",                                                      \
      "web origins that may call the server: off, yes (all), or origins; may be repeated",                   \
      "Only for pages in a browser; yes lets any page that you visit use the model.")                        \
    X(server, allowed_hosts, list, 0, NULL, "HOST", "", "",                                                  \
      "further Host names accepted on a loopback address; may be repeated",                                  \
      "For a proxy or a name of your own that points to this machine.")                                      \
    X(server, metrics_public, bool, 0, NULL, "", "no", "",                                                   \
      "serve /metrics without a key", "For a scraper that cannot send one.")                                 \
    X(server, slots_debug, bool, 0, NULL, "", "no", "",                                                      \
      "show prompt text in /slots", "Whoever has a key then reads what others ask.")                         \
    X(server, dialects, list, 0, NULL, "NAME", "all", "all|openai|responses|anthropic|llama|native",         \
      "APIs to serve; may be repeated", "Those left out answer 404.")                                        \
    X(server, max_body_bytes, size, 0, NULL, "SIZE", "64MiB", "",                                            \
      "largest request body the server accepts", "")                                                         \
    X(server, max_connections, int, 0, NULL, "N", "512", "1..65535",                                         \
      "connections held at the same time; more are closed at once", "Each takes a thread.")                  \
    X(server, stop_grace, secs, 0, NULL, "TIME", "60s", "0..86400",                                          \
      "how long a running answer may go on after a stop signal", "")                                         \
    X(server, control, str, 0, NULL, "WHEN", "auto", "auto|yes|no",                                          \
      "accept calls that cancel, pause and resume jobs",                                                     \
      "auto = only on a loopback address without a key.")                                                    \
    X(server, ui, bool, 0, NULL, "", "yes", "",                                                              \
      "serve the status page at /", "")                                                                      \
    X(server, idle_exit, secs, 0, NULL, "TIME", "0", "0..31536000",                                          \
      "end after this long without a request; 0 = never",                                                    \
      "With a service manager that starts lagoon on demand, memory is free when nobody asks.")               \
    X(clients, model_policy, str, 0, NULL, "HOW", "echo", "echo|strict",                                     \
      "model names in requests: echo serves any, strict wants the served one or an alias",                   \
      "strict tells a misdirected client; some clients then need aliases for their background calls.")       \
    X(clients, model_aliases, list, 0, NULL, "NAME", "", "",                                                 \
      "further names of the served model; may be repeated", "")                                              \
    X(clients, strict_status, str, 0, NULL, "CODE", "404", "404|400",                                        \
      "status of an unknown model under the strict policy", "")                                              \
    X(clients, sse_ping_s, secs, 0, NULL, "TIME", "5s", "1..3600",                                           \
      "longest silence in a stream before a keep-alive is sent", "")                                         \
    X(clients, sse_ping, str, 0, NULL, "KIND", "auto", "auto|off|comment|event",                             \
      "form of the keep-alive", "For clients that trip over comments or unknown events.")                    \
    X(clients, json_leading_space_ping, bool, 0, NULL, "", "no", "",                                         \
      "send a space every 10 s before an answer that is not streamed",                                       \
      "For proxies that give up on silence; the status is then sent before the answer is known.")            \
    X(clients, reasoning_field, str, 0, NULL, "NAME", "reasoning_content",                                   \
      "reasoning_content|reasoning|both",                                                                    \
      "field that carries thinking in Chat Completions", "Clients differ in what they read.")                \
    X(clients, reasoning_format, str, 0, NULL, "HOW", "auto", "auto|none",                                   \
      "none puts thinking inline into the content", "For clients that show nothing while the model thinks.") \
    X(clients, usage_on_finish, bool, 0, NULL, "", "no", "",                                                 \
      "put token counts into the last chunk even when not asked for", "")                                    \
    X(clients, drop_images, bool, 0, NULL, "", "no", "",                                                     \
      "leave images out of requests instead of refusing them", "The model does not see them.")               \
    X(clients, anthropic_default_thinking, str, 0, NULL, "HOW", "on", "on|off|hidden",                       \
      "thinking in the Messages API when a request does not say", "")                                        \
    X(clients, forced_tools, str, 0, NULL, "HOW", "force", "force|reject",                                   \
      "tool_choice that demands a call: force it, or refuse the request", "")                                \
    X(clients, strict_tools, str, 0, NULL, "HOW", "ignore", "ignore|enforce",                                \
      "strict of a tool definition", "enforce makes arguments follow the schema, at some cost in speed.")    \
    X(clients, format_with_tools, bool, 0, NULL, "", "no", "",                                               \
      "accept a response format together with tools", "")                                                    \
    X(clients, responses_store, int, 0, NULL, "N", "0", "0..100000",                                         \
      "answers of the Responses API kept for previous_response_id", "Each is held in memory.")               \
    X(cache, cache_slots, int, 0, NULL, "N", "16", "1..1024",                                                \
      "conversations kept in memory, the live one included", "")                                             \
    X(cache, cache_ram, size, 0, NULL, "SIZE", "auto", "auto MiB",                                           \
      "memory for conversations that are not on the device",                                                 \
      "auto = 30 % of what is left after loading (20 % when shared with the GPU), at most 64 GiB; too "      \
      "little means slow first tokens when you switch between clients.")                                     \
    X(cache, cache_dir, str, 0, NULL, "DIR", "", "",                                                         \
      "folder of stored conversations; empty = lagoon/kv in the user's cache folder",                        \
      "Private data: it holds what was said.")                                                               \
    X(cache, cache_scope, str, 0, NULL, "HOW", "shared", "shared|key",                                       \
      "who may reuse a cached conversation: everybody, or only the same API key",                            \
      "A hit is observable by its speed; key is for servers that several people use.")                       \
    X(cache, disk_cache, bool, 0, NULL, "", "yes", "",                                                       \
      "keep conversations on disk across restarts", "")                                                      \
    X(cache, disk_max_gib, int, 0, NULL, "N", "64", "0..1048576",                                            \
      "most disk space of stored conversations, in GiB",                                                     \
      "Lowered to a quarter of the free space at start.")                                                    \
    X(cache, disk_write_gib_day, int, 0, NULL, "N", "200", "0..1048576",                                     \
      "most that is written a day, in GiB; 0 = no limit", "Spares the disk.")                                \
    X(cache, idle_prefill, bool, 0, NULL, "", "yes", "",                                                     \
      "prepare the next turn while nothing else runs",                                                       \
      "Costs power while idle; saves seconds at the next question.")                                         \
    X(queue, queue_capacity, int, 0, NULL, "N", "16", "0..4096",                                             \
      "requests that may wait; more are answered with 429", "")                                              \
    X(queue, schedule, str, 0, NULL, "ORDER", "sjf", "sjf|fifo",                                             \
      "order of waiting requests: shortest prefill first, or arrival", "")                                   \
    X(sampling, thinking, bool, 0, "think", "", "yes", "",                                                   \
      "let the model think before it answers", "Off is faster and weaker.")                                  \
    X(sampling, default_budget, int, 0, NULL, "N", "4096", "-1..1048576",                                    \
      "most tokens of thinking when a request does not say; -1 = no bound", "")                              \
    X(sampling, history_thinking, str, 0, NULL, "HOW", "tail", "tail|all|none",                              \
      "thinking of earlier turns in the prompt",                                                             \
      "tail keeps that of the turn in progress; all costs context, none costs quality in tool use.")         \
    X(sampling, temperature, num, 0, "temp", "T", "1.0", "0..5",                                             \
      "sampling temperature; 0 = greedy and reproducible", "")                                               \
    X(sampling, top_k, int, 0, NULL, "K", "20", "-1..1048576",                                               \
      "sample from the K likeliest tokens; 0 or -1 = off", "")                                               \
    X(sampling, top_p, num, 0, NULL, "P", "1.0", "0..1",                                                     \
      "sample from the likeliest tokens that hold P of the probability", "")                                 \
    X(sampling, min_p, num, 0, NULL, "P", "0.0", "0..1",                                                     \
      "leave out tokens less likely than P times the likeliest", "")                                         \
    X(drafting, draft, str, 0, NULL, "FILE", "auto", "",                                                     \
      "drafter file, none, or auto: the one that belongs to the model", "")                                  \
    X(drafting, draft_max, int, 0, NULL, "N", "0", "0..64",                                                  \
      "most drafts a round; 0 = what the drafter was made for", "")                                          \
    X(drafting, draft_p_min, num, 0, NULL, "P", "0.5", "0..1",                                               \
      "drop drafts less sure than this; 0 = keep all", "")                                                   \
    X(drafting, draft_ctx, int, 0, NULL, "N", "0", "0..16777216",                                            \
      "context length past which drafting ends; 0 = never", "")                                              \
    X(drafting, draft_pause_margin, num, 0, NULL, "X", "1.0", "0..10",                                       \
      "pause drafting while its tokens cost more than this many plain ones; 0 = never pause", "")            \
    X(drafting, draft_type, str, 0, NULL, "TYPE", "q8_0", "q8_0|stored",                                     \
      "matrices of a drafter stored as 16 or 32 bit: rounded to q8_0 at load, or as stored", "")             \
    X(logs, log_level, str, 0, NULL, "LEVEL", "warn", "error|warn|info|debug",                               \
      "least important records that are written; serve writes info, too, unless told", "")                   \
    X(logs, log_content, bool, 0, NULL, "", "no", "",                                                        \
      "write prompts and answers into the log", "Whoever reads the log reads your work.")                    \
    X(logs, log_file, str, 0, NULL, "FILE", "", "",                                                          \
      "log file; empty = standard error", "")                                                                \
    X(logs, log_format, str, 0, NULL, "FORMAT", "auto", "auto|text|json",                                    \
      "form of a record; auto = json when log_file ends in .jsonl", "")                                      \
    X(logs, log_max, size, 0, NULL, "SIZE", "64MB", "",                                                      \
      "size at which a log file is replaced; four old ones are kept", "")                                    \
    X(logs, trace_max, size, 0, NULL, "SIZE", "1GB", "",                                                     \
      "most space of request traces; the oldest are removed", "")                                            \
    X(screen, tui, str, 0, NULL, "HOW", "auto", "auto|linear|off",                                           \
      "a dashboard, in versions that have one; this one writes plain logs", "")                              \
    X(screen, color, str, 0, NULL, "WHEN", "auto", "auto|always|never",                                      \
      "colours on a terminal", "")                                                                           \
    X(screen, chat_history, bool, 0, NULL, "", "yes", "",                                                    \
      "keep what was typed in chat for the next time", "")
/* clang-format on */

#endif
