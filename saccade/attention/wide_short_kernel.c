/* short_kernel.c with sixteen lanes, in an object file of its own. */

#include "short_kernel.c"
