/*
 * tests/support/scratch: files that a test writes. They lie in a folder that this process alone has, so that
 * copies of a test may run at the same moment, by whomever, wherever they were started; the folder goes when
 * the process exits. And settings that are nobody's.
 */
#ifndef SCRATCH_H
#define SCRATCH_H

/* The path of `name` in the folder, which the first call makes in TMPDIR or /tmp. The text is good for some
 * more calls: a test that keeps several paths for long copies them. Aborts when there can be no folder. */
const char *scratch_path(const char *name);

/* From now on it is as if nobody had set anything: no LAGOON_ variable, no lagoon.conf of a user. */
void scratch_no_settings(void);

#endif
