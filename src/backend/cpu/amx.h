// Advanced Matrix Extensions: eight 1 KiB tile registers and products of bf16 tiles with f32 sums.
#pragma once

namespace sluice::cpu {

// Whether this CPU multiplies bf16 tiles and the system lets this process do so. The first call asks the
// system for permission, which threads started later have, too.
bool amx_available();

}  // namespace sluice::cpu
