/* long_kernel.c with sixteen lanes, in an object file of its own. */

#include "long_kernel.c"
