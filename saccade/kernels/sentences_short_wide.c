/* sentences_short.c with sixteen lanes, in an object file of its own. */

#include "sentences_short.c"
