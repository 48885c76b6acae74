/* sentences_long.c with sixteen lanes, in an object file of its own. */

#include "sentences_long.c"
