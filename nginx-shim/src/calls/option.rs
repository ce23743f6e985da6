//! getsockopt and setsockopt.

use std::os::fd::RawFd;

use ff_dataplane::sockets::{SockError, SockOptName, SockOptValue};
use libc::{c_int, c_void, socklen_t};

use super::establish::option_refused;
use crate::description::State;
use crate::failure::{self, Failure, Outcome, fail};
use crate::options::{self, Question, Setting};
use crate::process;
use crate::real;

/// `setsockopt`. As long as a socket is not open in a stack, the kernel's socket beneath judges the value, and
/// what it takes is recorded.
///
/// # Errors
/// As `setsockopt(2)`.
pub fn set(fd: RawFd, level: c_int, name: c_int, value: &[u8]) -> Outcome<()> {
    let setting = options::parse(level, name, value);
    let mut process = process::lock();
    let description = process.description(fd)?.1;
    match description.state {
        State::Lost | State::Moved => fail(libc::EBADF),
        State::Open(socket) => match setting {
            Ok(Setting::Stack(option)) => match &mut process.stack {
                Some(stack) => {
                    stack.0.set_option(socket, option)?;
                    if !process.sleepers.is_empty() {
                        process.wake_sleepers();
                    }
                    Ok(())
                }
                None => fail(libc::EBADF),
            },
            Ok(Setting::ReceiveTimeout(timeout_us)) => {
                description.receive_timeout_us = timeout_us;
                Ok(())
            }
            Ok(Setting::SendTimeout(timeout_us)) => {
                description.send_timeout_us = timeout_us;
                Ok(())
            }
            Ok(Setting::WithoutEffect) => Ok(()),
            Err(failure) => {
                if failure == Failure::Errno(libc::ENOPROTOOPT) {
                    option_refused(level, name, failure);
                }
                Err(failure)
            }
        },
        State::Undecided | State::Bound(_) | State::Listening { .. } => {
            let decided = description.state != State::Undecided;
            // Nothing of ours ever takes data in a SYN: said now, where the application can still hear it.
            if decided
                && (level, name) == (libc::IPPROTO_TCP, libc::TCP_FASTOPEN)
                && value.iter().any(|&byte| byte != 0)
            {
                return fail(libc::EOPNOTSUPP);
            }
            // SAFETY: the value lives through the call; the descriptor is the kernel's socket beneath.
            let result =
                unsafe { real::setsockopt(fd, level, name, value.as_ptr().cast(), value.len() as socklen_t) };
            failure::real(result)?;
            match setting {
                Ok(Setting::ReceiveTimeout(timeout_us)) => description.receive_timeout_us = timeout_us,
                Ok(Setting::SendTimeout(timeout_us)) => description.send_timeout_us = timeout_us,
                Ok(Setting::WithoutEffect) => {}
                Ok(Setting::Stack(_)) | Err(_) => description.options.push((level, name, value.to_vec())),
            }
            Ok(())
        }
    }
}

/// `getsockopt`.
///
/// # Errors
/// As `getsockopt(2)`; `Kernel` when the real call is to be made.
///
/// # Safety
/// `len` is null or valid, `value` is null or valid for writes of `*len` bytes.
pub unsafe fn get(
    fd: RawFd,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Outcome<()> {
    let answer = answer(fd, level, name)?;
    if len.is_null() || value.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: `len` is valid, and `value` has as many bytes as it says, by the caller's word.
    unsafe {
        if (*len as i32) < 0 {
            return fail(libc::EINVAL);
        }
        let copied = answer.len().min(*len as usize);
        std::ptr::copy_nonoverlapping(answer.as_ptr(), value.cast::<u8>(), copied);
        *len = copied as socklen_t;
    }
    Ok(())
}

fn answer(fd: RawFd, level: c_int, name: c_int) -> Outcome<Vec<u8>> {
    let mut process = process::lock();
    let description = process.description(fd)?.1;
    let (receive_timeout_us, send_timeout_us) = (description.receive_timeout_us, description.send_timeout_us);
    match description.state {
        State::Lost | State::Moved => return fail(libc::EBADF),
        State::Listening { .. } if (level, name) == (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => {
            return Ok(1_i32.to_ne_bytes().to_vec());
        }
        // The kernel's socket beneath has everything that was set.
        State::Undecided | State::Bound(_) | State::Listening { .. } => return Err(Failure::Kernel),
        State::Open(_) => {}
    }
    match options::question(level, name) {
        Ok(Question::Stack(question)) => {
            let (stack, socket) = process.open_socket(fd)?;
            match stack.option(socket, question) {
                Ok(value) => Ok(options::encode(&value)),
                Err(SockError::NotConnected) if question == SockOptName::TcpInfo => {
                    let listens = stack.option(socket, SockOptName::AcceptConn);
                    Ok(options::tcp_info_without_connection(matches!(listens, Ok(SockOptValue::Int(1)))))
                }
                Err(error) => Err(error.into()),
            }
        }
        Ok(Question::ReceiveTimeout) => Ok(options::encode_timeout(receive_timeout_us)),
        Ok(Question::SendTimeout) => Ok(options::encode_timeout(send_timeout_us)),
        Ok(Question::Constant(value)) => Ok(value.to_ne_bytes().to_vec()),
        Err(failure) => {
            option_refused(level, name, failure);
            Err(failure)
        }
    }
}
