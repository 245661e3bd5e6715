/*
 * app/commands: the list of commands, in the order in which --help shows them.
 *
 * A row X(name) stands for `const lg_cmd lg_cmd_name`, defined in cmd_name.c. Commands that are known but not
 * in this version are in main.c, without a file of their own.
 */
#ifndef LG_APP_COMMANDS_H
#define LG_APP_COMMANDS_H

#include "app/app.h"

#define LG_COMMANDS(X) \
    X(serve) X(generate) \
    X(chat) X(bench) X(inspect) X(synth) X(tokenize) X(detokenize) X(template) X(logits) X(perplexity)

#define LG_COMMAND_DECLARE(name) extern const lg_cmd lg_cmd_##name;
LG_COMMANDS(LG_COMMAND_DECLARE)
#undef LG_COMMAND_DECLARE

#endif
