// The table of services, work that waits for its turn, and reports with the callers' addresses.
#include "services.h"

#include <c10/util/Exception.h>
#include <execinfo.h>

#include <map>
#include <mutex>
#include <utility>

#include "operators.h"

namespace anymetal {

Services services;

namespace {

constexpr int kFrames = 48;

std::mutex mutex;
std::map<uint64_t, std::function<void()>> waiting;
uint64_t next_work = 1;

std::function<void()> take(uint64_t number) {
  std::lock_guard<std::mutex> lock(mutex);
  auto found = waiting.find(number);
  if (found == waiting.end()) return {};
  auto work = std::move(found->second);
  waiting.erase(found);
  return work;
}

std::string located(const char* kind, const char* severity, const char* call,
                    const std::string& message) {
  void* frames[kFrames];
  const int count = backtrace(frames, kFrames);
  std::string answer;
  const OperatorCall* current = current_operator();
  services.report(kind, severity, call, current ? current->name.c_str() : "", message.c_str(),
                  frames, count, &answer);
  return answer;
}

}  // namespace

void submit(std::function<void()> work) {
  uint64_t number;
  {
    std::lock_guard<std::mutex> lock(mutex);
    number = next_work++;
    waiting[number] = std::move(work);
  }
  std::string answer;
  if (!services.submit(number, &answer)) fail(answer);
}

void warn(const char* kind, const char* severity, const char* call, const std::string& message) {
  located(kind, severity, call, message);
}

void refuse(const char* kind, const char* call, const std::string& message) {
  fail(located(kind, "error", call, message));
}

void fail(const std::string& message) {
  throw c10::Error({__func__, __FILE__, uint32_t(__LINE__)}, message);
}

}  // namespace anymetal

extern "C" {

void anymetal_extension_install(const anymetal::Services* services) {
  anymetal::services = *services;
}

void anymetal_extension_set_text(std::string* answer, const char* text) { *answer = text; }

// Runs work that was submitted; the message of what it raised goes into `answer`.
int anymetal_extension_run(uint64_t work, std::string* answer) {
  const auto function = anymetal::take(work);
  try {
    if (function) function();
    return 1;
  } catch (const c10::Error& error) {
    *answer = error.what_without_backtrace();
  } catch (const std::exception& error) {
    *answer = error.what();
  }
  return 0;
}

std::string* anymetal_extension_new_text() { return new std::string; }
const char* anymetal_extension_text(const std::string* text) { return text->c_str(); }
void anymetal_extension_delete_text(const std::string* text) { delete text; }

}  // extern "C"
