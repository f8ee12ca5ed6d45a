/* base: the foundation of every folder. The context with its message and log, arenas, growing arrays, number formats,
 * random numbers, the thread pool, CPU detection, JSON parser and writer, config keys. Knows nothing of graphs. */
#ifndef HT_BASE_H
#define HT_BASE_H

#include <halftone/context.h>
#include <halftone/types.h>

#include "base/arena.h"
#include "base/context.h"
#include "base/fail.h"
#include "base/half.h"
#include "base/json.h"
#include "base/json_write.h"
#include "base/key.h"
#include "base/madd.h"
#include "base/mathfn.h"
#include "base/nt_store.h"
#include "base/pages.h"
#include "base/philox.h"
#include "base/pool.h"
#include "base/processor.h"
#include "base/setting.h"
#include "base/shuffle.h"
#include "base/task.h"
#include "base/text.h"

#endif
