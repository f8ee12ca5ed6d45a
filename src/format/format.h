/* format: file formats. Files mapped or inflated, arrays (safetensors, npy, IDX), tables (CSV), images (PNG, JPEG, PGM, PPM),
 * token shards, TensorBoard events, checksums. Every parser treats its input as untrusted: sizes that do not fit are
 * refused, and the message names the file. Knows nothing of graphs, jobs or batches. Assumes a little-endian machine.
 */
#ifndef HT_FORMAT_H
#define HT_FORMAT_H

#include "format/array.h"
#include "format/checksum.h"
#include "format/content.h"
#include "format/csv.h"
#include "format/events.h"
#include "format/idx.h"
#include "format/image.h"
#include "format/npy.h"
#include "format/safetensors.h"
#include "format/shard.h"

#endif
